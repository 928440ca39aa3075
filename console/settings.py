"""Settings: one file, everything from the environment by the typed readers of console.env."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from console import env

BASE_DIR = Path(__file__).resolve().parent.parent

ENVIRONMENT = env.choice("SIGNALBOX_ENV", "production", ("production", "development", "test"))
PRODUCTION = ENVIRONMENT == "production"
DEBUG = False

SECRET_KEY = env.text(
    "SIGNALBOX_SECRET_KEY", None if PRODUCTION else "insecure-outside-production-" + "x" * 40
)
SIGNALBOX_KEYS = env.keyring(
    "SIGNALBOX_KEYS", None if PRODUCTION else "dev:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
)
ALLOWED_HOSTS = env.words("SIGNALBOX_HOSTS", "" if PRODUCTION else "localhost,127.0.0.1,testserver")
ORIGIN = env.text("SIGNALBOX_ORIGIN", "http://localhost:8000")
CSRF_TRUSTED_ORIGINS = [ORIGIN]

# A worker that has not renewed its lease for this long is taken for lost.
LEASE_SECONDS = env.number("SIGNALBOX_LEASE_SECONDS", 30, at_least=1)
# A process that is stopped in the middle of a transaction keeps its rows locked; the server ends it with the lease.
SESSION = f"-c idle_in_transaction_session_timeout={int(LEASE_SECONDS * 1000)}"


def database(url: str) -> dict[str, Any]:
    """Django's database settings for a postgresql:// URL; a socket folder may be given as ?host=."""
    parts = urlsplit(url)
    if parts.scheme not in ("postgres", "postgresql"):
        raise env.BadEnvironment(
            "DATABASE_URL",
            f"starts with {parts.scheme or 'nothing'!r}",
            "Give postgresql://user:password@host:port/database.",
        )
    options: dict[str, Any] = dict(parse_qsl(parts.query))
    try:
        port = parts.port or options.pop("port", "")
    except ValueError:
        raise env.BadEnvironment("DATABASE_URL", "has a port that is not a number", "Correct it.") from None
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": options.pop("host", "") or unquote(parts.hostname or ""),
        "PORT": str(port),
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {**options, "options": f"{SESSION} {options.get('options', '')}".strip()},
    }


DATABASE_URL = env.text(
    "DATABASE_URL",
    None if PRODUCTION else "postgresql://signalbox_app@localhost/signalbox",
    remedy="Set it to postgresql://user:password@host:port/database, or start with `make run`.",
)
DATABASES = {"default": database(DATABASE_URL)}
REDIS_URL = env.text(
    "REDIS_URL",
    None if PRODUCTION else "redis://localhost:6379/0",
    remedy="Set it to redis://host:port/0, or start with `make run`.",
)

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.staticfiles",
    "pgtrigger",
    "django_htmx",
    "csp",
    "allauth",
    "allauth.account",
    "console",
    "effects",
    "runs",
    *env.words("SIGNALBOX_APPS"),
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "console.pages.PageMiddleware",
]

ROOT_URLCONF = "console.urls"
ASGI_APPLICATION = "console.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "builtins": ["console.templatetags.ui"],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "csp.context_processors.nonce",
                "console.views.frame.frame",
            ],
        },
    }
]

STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
# Collected for production only; elsewhere files are served from where they stand.
STATIC_ROOT = BASE_DIR / "staticfiles" if PRODUCTION else None
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if PRODUCTION
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}
WHITENOISE_USE_FINDERS = not PRODUCTION

AUTH_USER_MODEL = "console.User"
AUTHENTICATION_BACKENDS = [
    "django.contrib.auth.backends.ModelBackend",
    "allauth.account.auth_backends.AuthenticationBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
if ENVIRONMENT == "test":
    # A real hash costs a tenth of a second a person, and tests make many.
    PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/"
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_ADAPTER = "console.views.account.InvitedOnly"
ACCOUNT_PREVENT_ENUMERATION = True
ACCOUNT_LOGOUT_ON_GET = False
ACCOUNT_RATE_LIMITS = {"login_failed": "20/m/ip,10/5m/key"}

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = True

SESSION_COOKIE_NAME = "__Host-sbx-session" if PRODUCTION else "sbx-session"
CSRF_COOKIE_NAME = "__Host-sbx-csrf" if PRODUCTION else "sbx-csrf"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = PRODUCTION
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SECURE_SSL_REDIRECT = PRODUCTION
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if PRODUCTION else None
SECURE_HSTS_SECONDS = 31_536_000 if PRODUCTION else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = PRODUCTION
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "font-src": ["'self'"],
        "connect-src": ["'self'"],
        "form-action": ["'self'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
    }
}

VISIBILITY_SECONDS = env.number("SIGNALBOX_VISIBILITY_SECONDS", 3600, at_least=1)
# The doorbell and the workers. The row is the queue: Celery carries ids only and keeps no results.
CELERY = {
    "broker_url": REDIS_URL,
    "task_ignore_result": True,
    "task_serializer": "json",
    "accept_content": ["json"],
    "task_acks_late": True,
    "worker_prefetch_multiplier": 1,
    "worker_hijack_root_logger": False,
    "worker_enable_remote_control": False,
    "worker_send_task_events": False,
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,
    "broker_transport_options": {
        "visibility_timeout": VISIBILITY_SECONDS,
        # Kombu looks for abandoned messages every interval × throttle seconds: 100 by default.
        "unacked_restore_interval": max(1, min(10, int(VISIBILITY_SECONDS / 5))),
        "unacked_restore_throttle": 1,
        "socket_connect_timeout": 2,
        "health_check_interval": 5,
    },
    "task_create_missing_queues": True,
}

WORKFLOWS = env.words("SIGNALBOX_WORKFLOWS")
CONTRACTS = env.words("SIGNALBOX_CONTRACTS")
# Where models are asked, as URLs: a simulation that is launched to ask them may reach these and nothing else outside.
MODEL_ADDRESSES = env.words("SIGNALBOX_MODEL_ADDRESSES")
# How long one node may run before its run fails with step_deadline.
STEP_SECONDS = env.number("SIGNALBOX_STEP_SECONDS", 600, at_least=1)
SWEEP_SECONDS = env.number("SIGNALBOX_SWEEP_SECONDS", 1, at_least=0.05)
# A file on storage that is not restored together with the database: the sweep notes there how far the ledger has come.
HIGH_WATER_FILE = env.text("SIGNALBOX_HIGH_WATER", "")
# Nothing irreversible is sent while Postgres may lose what it has confirmed. "no" is for test servers alone.
DURABLE_ONLY = env.choice("SIGNALBOX_DURABLE_ONLY", "yes", ("yes", "no")) == "yes"
if PRODUCTION and not DURABLE_ONLY:
    raise env.BadEnvironment(
        "SIGNALBOX_DURABLE_ONLY",
        "is no, and production sends nothing on commits that may be lost",
        "Remove it, and set fsync, full_page_writes and synchronous_commit of Postgres to on.",
    )
# Three losses without a new checkpoint or settled effect in between make the run failed "worker_lost".
LOSSES_ALLOWED = 3
RECURSION_LIMIT = int(env.number("SIGNALBOX_RECURSION_LIMIT", 200, at_least=1))

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": "INFO"},
    "loggers": {
        "httpx": {"level": "WARNING"},
        "httpx2": {"level": "WARNING"},
        "httpcore": {"level": "WARNING"},
        "openai": {"level": "WARNING"},
        "django.request": {"level": "ERROR"},
    },
}
