"""Objects in object stores."""
