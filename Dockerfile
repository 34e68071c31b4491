# Image of the server. Its store is in the volume, or in an etcd outside this image.
# Use another base image, with Python 3.11 to 3.14 as `python`: docker build --build-arg BASE=registry.example.com/python:3.13-slim .
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
WORKDIR /src
RUN python -m venv /opt/apiext
COPY requirements.lock ./
RUN /opt/apiext/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements.lock
COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE ./
COPY apiext apiext
RUN /opt/apiext/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps .

FROM ${BASE}
ARG VERSION=0.1.0
ARG REVISION=
LABEL org.opencontainers.image.title="apiext" \
      org.opencontainers.image.description="The Kubernetes custom-resource API without Kubernetes" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.vendor="the apiext authors" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/apiext /opt/apiext
COPY LICENSE /usr/share/doc/apiext/LICENSE
# The variable keeps the directory when other flags replace CMD, and `apiext kubeconfig print` finds the directory by it.
ENV PATH=/opt/apiext/bin:$PATH PYTHONDONTWRITEBYTECODE=1 APIEXT_DATA_DIR=/var/lib/apiext
RUN mkdir -p /var/lib/apiext && chown 65532:65532 /var/lib/apiext && chmod 0700 /var/lib/apiext
USER 65532:65532
VOLUME /var/lib/apiext
EXPOSE 6443
HEALTHCHECK --interval=5s --timeout=5s --start-period=20s --start-interval=1s CMD ["apiext", "check", "--url", "https://127.0.0.1:6443"]
# The server is PID 1, and shuts down gracefully on SIGTERM.
ENTRYPOINT ["apiext", "serve"]
CMD ["--bind-address=0.0.0.0"]
