//! An issuer for tests: it signs tokens with ES256.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::door::NOW_SECONDS;
use crate::auth::{Issuer, IssuerOptions};

pub(super) const ISSUER: &str = "https://issuer.example/tenant/v2.0";
pub(super) const USER: &str = "0f0e0d0c-0b0a-0908-0706-050403020100";
pub(super) const TENANT: &str = "00112233-4455-6677-8899-aabbccddeeff";

pub(super) struct Signer {
    pair: EcdsaKeyPair,
    id: &'static str,
}

impl Signer {
    pub(super) fn new(id: &'static str) -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        Self { pair, id }
    }

    /// The public key as the issuer publishes it.
    pub(super) fn jwk(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        let part = |range: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(&point[range]);
        json!({
            "kty": "EC", "crv": "P-256", "use": "sig", "kid": self.id,
            "x": part(1..33), "y": part(33..65),
        })
    }

    pub(super) fn token(&self, claims: &Value) -> String {
        self.token_with(
            &json!({"alg": "ES256", "typ": "JWT", "kid": self.id}),
            claims,
        )
    }

    pub(super) fn token_with(&self, header: &Value, claims: &Value) -> String {
        self.token_of(&header.to_string(), &claims.to_string())
    }

    pub(super) fn token_of(&self, header: &str, claims: &str) -> String {
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let signed = format!("{}.{}", encode(header), encode(claims));
        let random = SystemRandom::new();
        let signature = self.pair.sign(&random, signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// The claims in a token of a user with that role.
pub(super) fn claims(role: &str) -> Value {
    json!({
        "iss": ISSUER, "aud": "https://storage.azure.com",
        "nbf": NOW_SECONDS - 300, "exp": NOW_SECONDS + 3600,
        "oid": USER, "tid": TENANT, "roles": [role],
    })
}

pub(super) fn with(mut claims: Value, name: &str, value: Value) -> Value {
    claims[name] = value;
    claims
}

pub(super) fn document(keys: &[Value]) -> Vec<u8> {
    json!({ "keys": keys }).to_string().into_bytes()
}

/// An issuer that has the signer's key.
pub(super) fn issuer(signer: &Signer) -> Issuer {
    let issuer = Issuer::new(IssuerOptions::new(ISSUER));
    issuer.replace_keys(&document(&[signer.jwk()])).unwrap();
    issuer
}
