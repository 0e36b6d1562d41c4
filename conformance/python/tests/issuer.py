"""An issuer of bearer tokens, like a company's own identity provider: a key, and tokens signed with it."""

import base64
import json
import time

from azure.core.credentials import AccessToken
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

ISSUER = "https://issuer.example/tenant/v2.0"
AUDIENCE = "https://storage.azure.com"
USER = "00000000-0000-0000-0000-00000000000a"
TENANT = "00000000-0000-0000-0000-00000000000b"


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value):
    return encoded(value.to_bytes((value.bit_length() + 7) // 8, "big"))


class Issuer:
    def __init__(self, folder):
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        public = self.key.public_key().public_numbers()
        key = {"kty": "RSA", "kid": "one", "use": "sig", "alg": "RS256"}
        key.update(n=number(public.n), e=number(public.e))
        self.keys = folder / "keys.json"
        self.keys.write_text(json.dumps({"keys": [key]}))

    @property
    def options(self):
        """The options of kew."""
        return ["--issuer", ISSUER, "--issuer-keys", str(self.keys)]

    def token(self, roles, **claims):
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "nbf": now - 60,
            "iat": now - 60,
            "exp": now + 600,
            "oid": USER,
            "sub": USER,
            "tid": TENANT,
            "roles": roles,
            **claims,
        }
        header = {"alg": "RS256", "typ": "JWT", "kid": "one"}
        text = ".".join(encoded(json.dumps(part).encode()) for part in (header, claims))
        signature = self.key.sign(text.encode(), padding.PKCS1v15(), SHA256())
        return f"{text}.{encoded(signature)}"


class Credential:
    """An Entra credential for the SDK."""

    def __init__(self, issuer, *roles, **claims):
        self.issuer, self.roles, self.claims = issuer, list(roles), claims
        self.scopes = []

    def get_token(self, *scopes, **_options):
        self.scopes += scopes
        return AccessToken(self.issuer.token(self.roles, **self.claims), int(time.time()) + 300)
