"""The scripted model endpoint: it speaks the wire format of a model provider, and there is no model behind it."""
