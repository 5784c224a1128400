# syntax=docker/dockerfile:1
# One image for every process: `usher serve`, `usher worker`, `usher backend serve`.
#
# A tag may mean another image tomorrow, so the base is named by its digest: make image PYTHON_IMAGE=python@sha256:…
ARG PYTHON_IMAGE
FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
# The library for LDAP has no wheel: it is compiled here. No compiler gets into the image.
RUN apt-get update && apt-get install --yes --no-install-recommends binutils gcc libc6-dev libldap2-dev libsasl2-dev
WORKDIR /src
# First every package with its hash, whatever the extras are. Then pip chooses from these, without any index.
COPY config/requirements.txt config/requirements-build.txt config/requirements-ldap.txt config/
RUN python -m venv /opt/usher \
    && pip download --require-hashes --only-binary=:all: --dest /wheels -r config/requirements.txt \
    && pip install --require-hashes --only-binary=:all: -r config/requirements-build.txt \
    && pip wheel --no-build-isolation --require-hashes --wheel-dir /wheels -r config/requirements-ldap.txt
COPY pyproject.toml README.md ./
COPY app app
COPY config/demo config/demo
# The extras of pyproject.toml to install. Without `backend`, which only `usher backend` and `usher demo` need, the image is
# smaller by 75 MB.
ARG EXTRAS=backend,console,ldap,mapping,mysql,oauth,objects,postgres,scim
# PIP_CONFIG_FILE: a folder of packages in the settings of the machine has no hashes.
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && PIP_CONFIG_FILE=/dev/null /opt/usher/bin/pip install --no-index --find-links /wheels "usher[${EXTRAS}]" \
    && /opt/usher/bin/pip uninstall --yes pip setuptools
# Removes what no process uses: symbols for debuggers, and the extensions of CEL that rules do not have. (`*.libs` have been
# patched by their packagers; strip can damage such files.)
# Compiled once here: the user that runs it may write nothing there, and compiling takes longer than all the rest of a start.
# By their content, not by the time of the build, so that the same files make the same image.
RUN find /opt/usher -name '*.so' -not -path '*.libs/*' -exec strip --strip-unneeded {} + \
    && find /opt/usher -path '*/cel_expr_python/ext/*' -regex '.*/ext_\(bindings\|encoders\|proto\)\..*' -delete \
    && find /opt/usher -name '__pycache__' -prune -exec rm -rf {} + \
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
# By number, so that a cluster can see that it is not root.
USER 10001
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
