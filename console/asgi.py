"""The web process's entry: ASGI, for pages and for the event streams that hold no database connection."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

from django.core.asgi import get_asgi_application

application = get_asgi_application()
