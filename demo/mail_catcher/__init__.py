"""The mail catcher: a real SMTP server that delivers nothing and keeps everything it got."""
