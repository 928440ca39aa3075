# One image for every process of the product: web, worker, sweep, and setup_database before them.
FROM python:3.13-slim-bookworm

ENV PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1

RUN useradd --system --uid 10001 --home-dir /app --shell /usr/sbin/nologin signalbox
WORKDIR /app

# Before the source: a change of code installs nothing anew.
COPY requirements.txt ./
RUN pip install -r requirements.txt

COPY . .
# Production's settings want values even to gather files; these open nothing and stay in this one step.
RUN SIGNALBOX_ENV=production SIGNALBOX_HOSTS=build SIGNALBOX_ORIGIN=https://build \
    SIGNALBOX_SECRET_KEY=used-in-this-build-step-only-and-for-nothing-but-gathering-files \
    SIGNALBOX_KEYS=build:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA= \
    DATABASE_URL=postgresql://build@localhost/build REDIS_URL=redis://localhost:6379/0 \
    python manage.py collectstatic --noinput

# The files stay root's: the process that serves them can't change them.
USER signalbox
EXPOSE 8000
CMD ["python", "-m", "uvicorn", "console.asgi:application", "--host", "0.0.0.0", "--port", "8000", "--timeout-graceful-shutdown", "10", "--no-access-log", "--no-server-header"]
