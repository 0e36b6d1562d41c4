//! Signatures that SDKs of every generation made: azure-storage 0.20.0, azure-storage-queue 2.1.0,
//! 12.1.6, 12.15.0 and 12.18.1 for Python.

use super::door::{Answer, Door, PLAIN, SECURE};
use super::keys::{Signer, TENANT, claims, issuer, with};

/// Sends the operation that fits the signature, over the connection that it requires.
async fn check(query: &str, allows: bool) -> Answer {
    let signer = Signer::new("one");
    let door = Door::open(Some(issuer(&signer))).await;
    let target = format!("/orders/messages?peekonly=true&{query}");
    let user = "aaaaaaaa-0b0a-0908-0706-050403020100";
    let mut claims = with(claims(""), "oid", user.into());
    if query.contains("skdutid=") {
        claims = with(claims, "tid", "ffeeddcc-bbaa-9988-7766-554433221100".into());
    } else {
        claims = with(claims, "tid", TENANT.into());
    }
    let token = format!("Bearer {}", signer.token(&claims));
    let headers: &[_] = if query.contains("sduoid=") {
        &[("x-ms-version", "2026-10-06"), ("Authorization", &token)]
    } else {
        &[]
    };
    let origin = if query.contains("spr=https&") || !headers.is_empty() {
        SECURE
    } else {
        PLAIN
    };
    let answer = door.ask(origin, "GET", &target, headers, "").await;
    let expected = if allows {
        (404, "QueueNotFound")
    } else {
        (403, "AuthenticationFailed")
    };
    assert!(answer.is(expected.0, expected.1), "{query}: {answer:?}");
    answer
}

/// Made with the account's first key, valid from 07:00 to 09:00 on 2026-06-21.
const SIGNED: [&str; 14] = [
    // Of an account.
    "st=2026-06-21T07%3A00%3A00Z&se=2026-06-21T09%3A00%3A00Z&sp=rwdlacup&sv=2019-02-02&ss=q&srt=sco&sig=CUh89efXtlQk/mjEUJcX86fS9d3XPbzckQdDdfv%2Bry4%3D",
    "st=2026-06-21T07%3A00%3A00Z&se=2026-06-21T09%3A00%3A00Z&sp=rwlp&sip=10.0.0.9-10.0.0.20&spr=https%2Chttp&sv=2018-03-28&ss=q&srt=sco&sig=k72%2BnA3MBTaGQ2wTFYdZ164EVCPXyodLhVBYOfauwGc%3D",
    "se=2026-06-21T09%3A00%3A00Z&sp=rwdlacup&sv=2026-02-06&ss=q&srt=o&sig=2OIPx5kox1DJ1pqBz9vDxkvXLyylgLksLAV28pWu5aw%3D",
    "st=2026-06-21T07%3A00%3A00Z&se=2026-06-21T09%3A00%3A00Z&sp=rwlp&sip=10.0.0.9-10.0.0.20&spr=https%2Chttp&sv=2026-10-06&ss=bqtf&srt=sco&sig=yLHk8NX3x/jVItqx3dpCwqMhfbSAx3MqtvY4h%2BWVRjQ%3D",
    // Of a queue.
    "st=2026-06-21T07%3A00%3A00Z&se=2026-06-21T09%3A00%3A00Z&sp=raup&sv=2012-02-12&sig=R7dzFLX4kqyj2aRWoPFkdcrrrFFTE0aWpUwlPcK0Sz4=",
    "st=2026-06-21T07%3A00%3A00Z&se=2026-06-21T09%3A00%3A00Z&sp=raup&sv=2014-02-14&sig=cLeWQ983Esz772lIsFmcEVwZUhekfMeWOJYisa/awgE=",
    "st=2026-06-21T07%3A00%3A00Z&se=2026-06-21T09%3A00%3A00Z&sp=raup&sip=10.0.0.9&spr=https&sv=2018-03-28&sig=SUIzBmK5EyBYguzbRkis/1EPoi/Jl%2BTgSLlQYpxV3Wo%3D",
    "st=2026-06-21T07%3A00%3A00Z&se=2026-06-21T09%3A00%3A00Z&sp=raup&sip=10.0.0.9&spr=https&sv=2019-02-02&sig=eraxFMfd8GpKDNTg35e/%2BWY6XAkJc0E%2BeUoYts/dmTw%3D",
    "st=2026-06-21T07%3A00%3A00Z&se=2026-06-21T09%3A00%3A00Z&sp=raup&sip=10.0.0.9&spr=https&sv=2026-02-06&sig=MzVgNhNpTMgXMt2DHP9yADRZlGrSAsS661iTQjuDZIM%3D",
    "st=2026-06-21T07%3A00%3A00Z&se=2026-06-21T09%3A00%3A00Z&sp=raup&sip=10.0.0.9&spr=https&sv=2026-10-06&sig=sgAx69xeAbO7G5xPfv%2BHGxdY2IfjNnx1CvZXHME2LBs%3D",
    // Of a queue by a contributor, with the key that the server issues.
    "se=2026-06-21T09%3A00%3A00Z&sp=r&sv=2026-02-06&skoid=0f0e0d0c-0b0a-0908-0706-050403020100&sktid=00112233-4455-6677-8899-aabbccddeeff&skt=2026-06-21T00%3A00%3A00Z&ske=2026-06-22T00%3A00%3A00Z&sks=q&skv=2026-02-06&sig=eE8ZAsqjbP9LD9wu%2BEx60rE%2Br15r4cTZhd68IIv44q0%3D",
    "se=2026-06-21T09%3A00%3A00Z&sp=r&sv=2026-10-06&skoid=0f0e0d0c-0b0a-0908-0706-050403020100&sktid=00112233-4455-6677-8899-aabbccddeeff&skt=2026-06-21T00%3A00%3A00Z&ske=2026-06-22T00%3A00%3A00Z&sks=q&skv=2026-02-06&sr=q&sig=xzyBTvaaxoMvbzA0dWWwwJ3RcTCbjbqiVMTOmXb2Kz4%3D",
    "st=2026-06-21T07%3A00%3A00Z&se=2026-06-21T09%3A00%3A00Z&sp=raup&sv=2026-02-06&sduoid=aaaaaaaa-0b0a-0908-0706-050403020100&skoid=0f0e0d0c-0b0a-0908-0706-050403020100&sktid=00112233-4455-6677-8899-aabbccddeeff&skt=2026-06-21T00%3A00%3A00Z&ske=2026-06-22T00%3A00%3A00Z&sks=q&skv=2026-02-06&sig=Zw1CPxdIcGLzsIsY/Ac4gzuIoONJUNm%2BpjwdW6I8IlE%3D",
    "st=2026-06-21T07%3A00%3A00Z&se=2026-06-21T09%3A00%3A00Z&sp=raup&sv=2026-10-06&sduoid=aaaaaaaa-0b0a-0908-0706-050403020100&skoid=0f0e0d0c-0b0a-0908-0706-050403020100&sktid=00112233-4455-6677-8899-aabbccddeeff&skt=2026-06-21T00%3A00%3A00Z&ske=2026-06-22T00%3A00%3A00Z&sks=q&skv=2026-02-06&skdutid=ffeeddcc-bbaa-9988-7766-554433221100&sig=WBq80F7VhEj7scVYRvS6%2BkZ2KTKeWTlo2eXbbYgNhdI%3D",
];

#[tokio::test]
async fn signatures_of_the_sdks_are_valid() {
    for query in SIGNED {
        let answer = check(query, true).await;
        // Without a header the request has the version of the signature.
        let (_, rest) = query.split_once("sv=").unwrap();
        assert_eq!(
            answer.header("x-ms-version"),
            Some(if query.contains("sduoid=") {
                "2026-10-06"
            } else {
                &rest[..10]
            })
        );
    }
}

#[tokio::test]
async fn their_signatures_with_a_policy_are_valid() {
    for (version, signature) in [
        (
            "2018-03-28",
            "tAsExt4tFW3NgR68o1fmkn6kkPhpyiX4l4eFdCPKscw%3D",
        ),
        (
            "2026-02-06",
            "eiTeG0OAXviYlztjMKEElyYQdgpOtuDRhgC8Ppz221w%3D",
        ),
        (
            "2026-10-06",
            "Er2Md1L45lO1Ii18LebCxpGiDdROtSGTePhi9b1hXZU%3D",
        ),
    ] {
        // A space may also be a plus.
        for id in ["pol%20icy%2B1", "pol+icy%2B1"] {
            let query = format!("sv={version}&si={id}&sig={signature}");
            let answer = check(&query, false).await;
            assert!(
                answer.text.contains("no stored access policy 'pol icy+1'"),
                "{answer:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_signature_that_does_not_match_gets_the_string_to_sign() {
    let query = SIGNED[9].replace("sp=raup", "sp=raupx");
    let answer = check(&query, false).await;
    assert!(
        answer.text.contains(
            "<AuthenticationErrorDetail>Signature did not match. String to sign used was raupx\n\
             2026-06-21T07:00:00Z\n2026-06-21T09:00:00Z\n/queue/devstoreaccount1/orders\n\n\
             10.0.0.9\nhttps\n2026-10-06</AuthenticationErrorDetail>"
        ),
        "{answer:?}"
    );
}
