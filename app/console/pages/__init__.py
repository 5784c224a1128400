"""The pages, one module for each place in the menu."""
