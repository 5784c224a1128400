"""What every room's tables and statements rest on."""
