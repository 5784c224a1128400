"""What operators watch: notifications, metrics and the activity of nodes."""
