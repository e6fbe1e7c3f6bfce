"""Who may talk to the rig's API server: certificates, token lines, kubeconfig files."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Identity:
    """A user of the API server as its token file names it; ``cluster_admin`` binds the *user* to that role.

    ``part`` marks the programs of the control plane: they get a kubeconfig, but are nobody's account.
    """

    name: str
    user: str
    groups: tuple[str, ...] = ()
    cluster_admin: bool = False
    part: bool = False


def service_account(name: str, namespace: str, account: str, *, part: bool = False) -> Identity:
    """An identity that is a service account, with the groups that Kubernetes gives to one."""
    user = f"system:serviceaccount:{namespace}:{account}"
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return Identity(name, user, groups, part=part)


# The token file is read once, when the API server starts: whoever is not here needs Rig(identities=...).
IDENTITIES: tuple[Identity, ...] = (
    Identity("admin", "rig-admin", ("system:masters",)),
    service_account("lockstep", "lockstep", "lockstep"),
    Identity("break-glass", "break-glass", ("lockstep:break-glass",), cluster_admin=True),
    Identity("stranger", "stranger", cluster_admin=True),
    service_account("second-lockstep", "second-lockstep", "lockstep"),
    Identity("nobody", "nobody"),
    Identity("spare", "spare"),
    service_account("lws", "lws-system", "lws-controller-manager", part=True),
    Identity("controller-manager", "system:kube-controller-manager", part=True),
    Identity("scheduler", "system:kube-scheduler", part=True),
    Identity("kwok", "rig-kwok", ("system:masters",), part=True),
    Identity("runner", "rig-runner", ("system:masters",), part=True),
    Identity("prometheus", "rig-prometheus", part=True),
)


@dataclass(frozen=True)
class Credentials:
    """Files of one rig's trust, all below ``folder``."""

    folder: Path
    ca: Path
    serving_certificate: Path
    serving_key: Path
    service_account_key: Path
    token_file: Path

    @property
    def webhook_folder(self) -> Path:
        """Folder with tls.crt and tls.key, as controller-runtime takes it."""
        return self.serving_certificate.parent

    def kubeconfig(self, name: str) -> Path:
        """The kubeconfig file of one identity."""
        return self.folder / "kubeconfig" / f"{name}.yaml"


def issue(folder: Path, identities: Sequence[Identity], server: str) -> Credentials:
    """Write a new authority, serving certificate, signing key, token file and one kubeconfig per identity."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Credentials(
        folder=folder,
        ca=folder / "ca.crt",
        serving_certificate=folder / "serving" / "tls.crt",
        serving_key=folder / "serving" / "tls.key",
        service_account_key=folder / "service-account.key",
        token_file=folder / "tokens.csv",
    )
    _write_certificates(made)
    lines = []
    for number, identity in enumerate(identities):
        token = secrets.token_hex(16)
        groups = ",".join(identity.groups)
        lines.append(f'{token},{identity.user},{number + 1},"{groups}"\n')
        _private(made.kubeconfig(identity.name), yaml.safe_dump(_kubeconfig(made, identity, token, server)))
    _private(made.token_file, "".join(lines))
    return made


def _kubeconfig(made: Credentials, identity: Identity, token: str, server: str) -> dict[str, Any]:
    authority = base64.b64encode(made.ca.read_bytes()).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "rig", "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": identity.name, "user": {"token": token}}],
        "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": identity.name}}],
        "current-context": "rig",
    }


def _write_certificates(made: Credentials) -> None:
    authority_key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lockstep rig")])
    authority = (
        _certificate(issuer, issuer, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName(
        [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    )
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    serving = (
        _certificate(subject, issuer, key.public_key())
        .add_extension(names, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    _private(made.ca, _pem(authority))
    _private(made.serving_certificate, _pem(serving))
    _private(made.serving_key, _key_pem(key))
    _private(made.service_account_key, _key_pem(ec.generate_private_key(ec.SECP256R1())))


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + 30 * _DAY)
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        # SEC 1: Kubernetes reads PKCS 8 keys for serving, but not for signing service account tokens.
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    ).decode()


def _private(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(text)
