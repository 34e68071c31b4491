"""Set up listener, credentials, certificates, health checks and kubeconfig as configured."""

import ipaddress
import logging
import ssl
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from apiext import launch, logs
from apiext.audit.auditor import Auditor
from apiext.auth import authentication, kubeconfig
from apiext.auth.authentication import Authenticator, Credentials, NoAuthentication
from apiext.auth.bound_objects import Find
from apiext.auth.serving import Serving, ServingCertificate
from apiext.auth.tokens import Tokens
from apiext.auth.user import SUPERUSER
from apiext.config import AuthConfig, Config, ConfigError, EtcdConfig, ProxyConfig, Worker
from apiext.controllers import authentication_trust
from apiext.etcd.transport import TLS
from apiext.http import access_log
from apiext.http.health import ENDPOINTS, Check, Health
from apiext.http.openid import Issuer
from apiext.http.operations import VerbOperations
from apiext.http.server import HttpServer, Settings
from apiext.http.tls import HANDSHAKE_ERRORS, request_client_certificates, tls_context
from apiext.schema import timing
from apiext.storage import metrics
from apiext.system import sockets
from apiext.telemetry import Family, Telemetry
from apiext.verbs.call import Verbs

if TYPE_CHECKING:
    from apiext.auth.proxies import Proxies
    from apiext.auth.signing import Verifier

CERTIFICATE_CHECK = "serving-certificate"
"""Name of the check that fails once the serving certificate has expired, since clients reject the server then."""

log = logging.getLogger(__name__)


class Identity(Struct, frozen=True):
    """TLS of the server, the credentials that it accepts, and the token of its admin kubeconfig."""

    tls: ssl.SSLContext | None
    authenticator: Authenticator
    token: str
    accounts: Tokens
    proxies: "Proxies | None" = None
    certificate: ServingCertificate | None = None

    @property
    def ca(self) -> bytes:
        """The current CAs (PEM) with which clients verify the server; empty without TLS."""
        return self.certificate.current.ca if self.certificate is not None else b""


def identity(config: Config, find: Find) -> Identity:
    """Create or load certificates and tokens; raise ConfigError for unusable files.

    With --insecure, the server needs only the keys of service account tokens. ``find`` finds service accounts and the
    objects that their tokens are bound to.
    """
    key = Path(config.tokens.signing_key_file or config.data_dir / "pki" / "service-accounts.key")
    former = [key for file in config.tokens.key_files for key in _verifiers(file)]
    accounts = Tokens(
        key, config.tokens.issuers, config.tokens.audiences, find, former=former, longest=config.tokens.longest
    )
    if config.tokens.signing_key_file:
        with launch.file_of("service-account-signing-key-file", key):
            accounts.check()
    elif config.worker is not None:
        accounts.signer()  # the first worker creates the key before further workers start
    if config.listening.insecure:
        return Identity(None, NoAuthentication(), "", accounts)
    from apiext.auth.certificates import load_token  # imports cryptography, which takes 40 ms

    flag, file, load = _serving_of(config)
    with launch.file_of(flag, file):
        certificate = ServingCertificate(load, renews=config.first)
    serving = certificate.current
    token = config.auth.token or load_token(config.data_dir / "admin.token")
    users = {token: SUPERUSER}
    if config.auth.token_file:
        with launch.file_of("token-auth-file", config.auth.token_file):
            users |= authentication.read_token_file(Path(config.auth.token_file))
    client_ca, proxy = config.auth.client_ca_file or serving.authority, config.auth.proxy
    with launch.file_of("tls-cert-file", serving.certificate):
        context = tls_context(str(serving.certificate), str(serving.key), config.tls.minor)
    if client_ca:
        with launch.file_of("client-ca-file", client_ca):
            request_client_certificates(context, client_ca)
    proxies = _proxies(proxy, client_ca) if proxy.ca_file else None
    if proxy.ca_file:
        request_client_certificates(context, proxy.ca_file)
    if proxies is not None:  # a resumed session would not tell which CA signed the client certificate
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    if client_ca and client_ca == serving.authority:
        certificate.changed.append(lambda renewed: _trust_clients(context, proxies, renewed))
    return Identity(context, Credentials(users, accounts), token, accounts, proxies, certificate)


def trust_of(config: AuthConfig, identity: Identity) -> dict[str, str]:
    """Return the data of a configmap: CAs of clients and proxies, and settings of proxies.

    The configmap is ``kube-system/extension-apiserver-authentication``. The result is empty without TLS.
    Raise OSError for a file that cannot be read.
    """
    if identity.certificate is None:
        return {}
    client_ca, proxy = config.client_ca_file or identity.certificate.current.authority, config.proxy
    texts = [Path(file).read_text("utf-8") if file else "" for file in (client_ca, proxy.ca_file)]
    return authentication_trust.trust_of(texts[0], texts[1], proxy)


def _verifiers(file: str) -> "list[Verifier]":
    """Return the keys of a file of --service-account-key-file."""
    from apiext.auth.signing import verifiers_of  # imports cryptography

    with launch.file_of("service-account-key-file", file):
        return verifiers_of(Path(file))


def _trust_clients(context: ssl.SSLContext, proxies: "Proxies | None", renewed: Serving) -> None:
    """Accept client certificates of the server's own CA after its renewal."""
    context.load_verify_locations(renewed.authority)
    if proxies is not None:
        proxies.trust(renewed.authority)


def etcd_tls(settings: EtcdConfig) -> TLS:
    """Return the TLS files for etcd, which each connection reads.

    Raise ConfigError for invalid files.
    """
    ca, certificate, key = settings.cafile, settings.certfile, settings.keyfile
    if ca:
        with launch.file_of("etcd-cafile", ca):
            TLS(ca).context()
    if certificate:
        with launch.file_of("etcd-certfile", f"{certificate}, --etcd-keyfile {key}"):
            TLS(ca, certificate, key).context()
    return TLS(ca, certificate, key)


def _proxies(config: ProxyConfig, client_ca: str) -> "Proxies":
    """Return the trusted proxies; raises ConfigError."""
    from apiext.auth.proxies import Proxies, ProxyError  # imports cryptography

    try:
        return Proxies(config, client_ca)
    except ProxyError as error:
        raise ConfigError(str(error)) from error
    except OSError as error:
        raise ConfigError(f"--requestheader-client-ca-file {config.ca_file}: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"--requestheader-client-ca-file {config.ca_file}: it contains no certificates") from error


def _serving_of(config: Config) -> tuple[str, Path, Callable[[], Serving]]:
    """Return (flag, file, loader) of the serving certificate.

    The certificate is configured by flags, is in --cert-dir, or is the server's own. The caller's errors name the flag
    and the file. The server's own certificate is copied to --cert-dir, if this flag is set.
    """
    from apiext.auth import certificates  # imports cryptography

    directory = config.data_dir / "pki"
    in_directory = Path(config.tls.cert_dir) / "apiserver.crt" if config.tls.cert_dir else None
    if config.tls.cert_file:
        given, key = Path(config.tls.cert_file), Path(config.tls.key_file)
        return "tls-cert-file", given, lambda: certificates.given_serving(given, key)
    if in_directory is not None and in_directory.exists() and not certificates.is_copy(in_directory, directory):
        return (
            "tls-cert-file",
            in_directory,
            lambda: certificates.given_serving(in_directory, in_directory.with_suffix(".key")),
        )
    with launch.file_of("tls-san", ",".join(config.tls.sans)):
        names = certificates.serving_names(config.listening.bind_address, config.tls.sans)

    def load() -> Serving:
        own = certificates.load_serving(directory, certificates.load_authority(directory), names)
        if in_directory is not None:
            with launch.file_of("cert-dir", config.tls.cert_dir):
                certificates.copy_serving(own, in_directory)
        return own

    return "data-dir", directory, load


def endpoint(bind_address: str) -> str:
    """Return the address under which other machines reach the server.

    The result is empty for a loopback address or a host name.
    """
    if sockets.is_unspecified(bind_address):
        return sockets.own_address()
    try:
        return "" if ipaddress.ip_address(bind_address).is_loopback else bind_address
    except ValueError:  # a host name
        return ""


async def listen(
    config: Config,
    verbs: Verbs,
    identity: Identity,
    checks: dict[str, Callable[[], str]],
    telemetry: Telemetry,
    auditor: Auditor | None = None,
) -> HttpServer:
    """Start the HTTP server; /readyz fails until every check passes."""
    for audited in auditor.counters.families if auditor is not None else ():
        telemetry.add(audited)
    for family in verbs.converter.metrics.families if verbs.converter is not None else ():
        telemetry.add(family)
    for family in verbs.admission.metrics.families:
        telemetry.add(family)
    for family in (timing.COMPILATION, timing.EVALUATION, timing.RATCHETING, HANDSHAKE_ERRORS, *metrics.FAMILIES):
        telemetry.add(family)
    if config.store.encryption_config:
        from apiext.controllers import encryption_reload

        for family in encryption_reload.FAMILIES:
            telemetry.add(family)
    if config.worker is not None:
        telemetry.add(_worker_family(config.worker))
    if identity.certificate is not None:
        telemetry.add(identity.certificate.family)
        checks = checks | {CERTIFICATE_CHECK: identity.certificate.fault}
    health = Health([Check(name, probe, _endpoints_of(name)) for name, probe in checks.items()])
    server = HttpServer(
        VerbOperations(verbs),
        identity.authenticator,
        verbs.authorizer,
        health,
        Settings(
            listening=config.listening,
            requests=config.requests,
            workers=config.worker.of if config.worker is not None else 1,
            tls=identity.tls,
            certificate=identity.certificate,
            version=f"v{config.apis.kubernetes_version}",
            anonymous=config.auth.anonymous,
            access_log=_access_log(config),
            proxies=identity.proxies,
            issuer=Issuer(identity.accounts, config.tokens.keys_url, "http" if identity.tls is None else "https"),
        ),
        telemetry,
        auditor,
    )
    try:
        await server.start()
    except OSError as error:
        raise launch.refused(config.listening, error) from error
    return server


def _access_log(config: Config) -> access_log.AccessLog | None:
    if config.output.verbosity < logs.REQUESTS:
        return None
    number = config.worker.number if config.worker is not None else 0
    return access_log.AccessLog(sys.stderr.fileno(), logs.formatter(config.output.logging_format, number))


def _worker_family(worker: Worker) -> Family:
    """Return the metric that names the scraped worker, since each worker has its own metrics."""
    family = Family("apiext_worker_info", "gauge", "The scraped worker, and the number of workers.", ("worker", "of"))
    family.slot(str(worker.number), str(worker.of)).value = 1
    return family


def _endpoints_of(check: str) -> Sequence[str]:
    """Return the endpoints that run a check; as upstream, some checks are for readiness only.

    See HLT-002.
    """
    if check in ("etcd", CERTIFICATE_CHECK) or check.startswith("poststarthook/"):
        return ENDPOINTS
    return ("healthz", "readyz") if check == "kms-providers" else ("readyz",)


def write_kubeconfig(config: Config, identity: Identity, url: str) -> Path:
    """Write the admin kubeconfig, readable by its owner only, and return its path.

    Raise ConfigError if it cannot be written.
    """
    path = Path(config.output.kubeconfig or config.data_dir / "admin.kubeconfig").absolute()
    with launch.file_of("kubeconfig", config.output.kubeconfig or path):
        if config.output.kubeconfig:
            kubeconfig.check_replaceable(path)
        kubeconfig.write(path, kubeconfig.Access(url, identity.ca, identity.token))
    return path


def follow_certificate(config: Config, identity: Identity, url: str) -> None:
    """Rewrite the admin kubeconfig whenever the CAs of the server change."""
    last = identity.ca

    def again(renewed: Serving) -> None:
        nonlocal last
        if renewed.ca == last:
            return
        last = renewed.ca
        try:
            write_kubeconfig(config, identity, url)
        except ConfigError as error:
            log.warning("the admin kubeconfig could not be rewritten for the new authority: %s", error)

    if identity.certificate is not None:
        identity.certificate.changed.append(again)
