# The server alone: its store lies in the volume, or an etcd runs beside it.
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md ./
COPY apiext apiext
RUN python -m venv /opt/apiext && /opt/apiext/bin/pip install --no-cache-dir --disable-pip-version-check .

FROM python:3.13-slim
LABEL org.opencontainers.image.title="apiext" \
      org.opencontainers.image.description="The Kubernetes custom-resource API without Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/apiext /opt/apiext
# The directory by its variable, too: other flags keep it, and `apiext kubeconfig print` finds it.
ENV PATH=/opt/apiext/bin:$PATH PYTHONDONTWRITEBYTECODE=1 APIEXT_DATA_DIR=/var/lib/apiext
RUN mkdir -p /var/lib/apiext && chown 65532:65532 /var/lib/apiext && chmod 0700 /var/lib/apiext
USER 65532:65532
VOLUME /var/lib/apiext
EXPOSE 6443
HEALTHCHECK --interval=5s --timeout=5s --start-period=20s CMD ["apiext", "check", "--url", "https://127.0.0.1:6443"]
# The server is PID 1 and ends in order on SIGTERM.
ENTRYPOINT ["apiext", "serve"]
CMD ["--bind-address=0.0.0.0"]
