# syntax=docker/dockerfile:1
# One image for every process: `usher serve`, `usher worker`, `usher backend serve`.
FROM python:3.11-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python -m venv /opt/usher
COPY config/requirements.txt config/requirements.txt
RUN /opt/usher/bin/pip install --require-hashes --only-binary=:all: -r config/requirements.txt
COPY pyproject.toml README.md ./
COPY app app
COPY config/demo config/demo
# The build tool stays in this stage; the application itself has no dependency left to resolve.
RUN pip install hatchling editables \
    && pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/usher/bin/pip install --no-deps --no-index /wheels/*.whl \
    && /opt/usher/bin/pip uninstall --yes pip setuptools \
    && find /opt/usher -name '__pycache__' -prune -exec rm -rf {} +

FROM python:3.11-slim
RUN useradd --system --uid 10001 --home-dir /var/lib/usher --create-home usher
COPY --from=build /opt/usher /opt/usher
ENV PATH=/opt/usher/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 USHER_SERVER__HOST=0.0.0.0
USER usher
# The embedded database and whatever else is written live here; configuration and secrets come from outside:
# mount a file and name it in USHER_CONFIG, or set USHER_<SECTION>__<KEY> and <key>_file.
WORKDIR /var/lib/usher
VOLUME /var/lib/usher
EXPOSE 8080 8090
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ.get('USHER_SERVER__PORT', '8080') + '/healthz', timeout=2)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["usher"]
CMD ["serve", "--with-worker"]
