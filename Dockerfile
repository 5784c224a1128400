# syntax=docker/dockerfile:1
# One image for every process: `usher serve`, `usher worker`, `usher backend serve`.
#
# A tag may mean another image tomorrow, so the base is named by its digest: make image PYTHON_IMAGE=python@sha256:…
ARG PYTHON_IMAGE
# The library for LDAP has no wheel: it is compiled in a stage of its own, whose compiler goes nowhere else.
FROM ${PYTHON_IMAGE} AS ldap
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev libldap2-dev libsasl2-dev
WORKDIR /src
COPY config/requirements-build.txt config/requirements-ldap.txt config/
RUN pip install --require-hashes --only-binary=:all: -r config/requirements-build.txt \
    && pip wheel --no-build-isolation --require-hashes --wheel-dir /wheels -r config/requirements-ldap.txt

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python -m venv /opt/usher
COPY config/requirements.txt config/requirements-build.txt config/
RUN /opt/usher/bin/pip install --require-hashes --only-binary=:all: -r config/requirements.txt
COPY --from=ldap /wheels /ldap
RUN /opt/usher/bin/pip install --no-deps --no-index /ldap/*.whl
COPY pyproject.toml README.md ./
COPY app app
COPY config/demo config/demo
# The build tool stays in this stage; the application itself has no dependency left to resolve.
RUN pip install --require-hashes --only-binary=:all: -r config/requirements-build.txt \
    && pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/usher/bin/pip install --no-deps --no-index /wheels/*.whl \
    && /opt/usher/bin/pip uninstall --yes pip setuptools
# Compiled once here: the user that runs it may write nothing there, and compiling takes longer than all the rest of a start.
# By their content, not by the time of the build, so that the same files make the same image.
RUN find /opt/usher -name '__pycache__' -prune -exec rm -rf {} + \
    && /opt/usher/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/usher/lib

FROM ${PYTHON_IMAGE}
# What the library for LDAP is linked against, with Kerberos for sasl: gssapi. ldap-utils stands for libldap, whose package
# is called otherwise in each release of Debian.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates ldap-utils libsasl2-modules-gssapi-mit \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --system --uid 10001 --home-dir /var/lib/usher --create-home usher
COPY --from=build /opt/usher /opt/usher
ENV PATH=/opt/usher/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 USHER_SERVER__HOST=0.0.0.0
USER usher
# The embedded database and whatever else is written live here; configuration and secrets come from outside:
# mount a file and name it in USHER_CONFIG, or set USHER_<SECTION>__<KEY> and <key>_file.
WORKDIR /var/lib/usher
VOLUME /var/lib/usher
EXPOSE 8080 8090
# Asks the processes of Usher that run in the container.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 CMD ["usher", "health"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["usher"]
CMD ["serve", "--with-worker"]
