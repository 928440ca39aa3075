"""The test receiver: an outside business system with its own database, made to be broken on order."""
