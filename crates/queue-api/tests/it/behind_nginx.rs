//! The ambiguous requests through nginx: forwarded requests are never split in another way.
//!
//! nginx logs each request that it forwards. The front end must see only those: any other was
//! smuggled. And the next client on the same connections must get the answer to its own request.
//!
//! Without nginx the test reports that it was skipped, or fails if nothing may be skipped.

use std::collections::BTreeSet;

use crate::client::{Call, Door, call, put};
use crate::forms::{FIRST_LINES, FORMS};
use crate::nginx::{Nginx, say};
use crate::smuggling::text_of;

/// How many requests the front end has seen.
async fn seen(door: &Door) -> usize {
    let wire = &mut door.connect_operator();
    let page = wire
        .send(call("GET", "").target("/metrics").anonymous())
        .await;
    let counts = page.body.lines().filter_map(|line| {
        let line = line.strip_prefix("kew_requests_total{")?;
        line.rsplit(' ').next()?.parse::<usize>().ok()
    });
    counts.sum()
}

fn text(call: &Call) -> String {
    String::from_utf8(call.to_bytes()).unwrap()
}

#[tokio::test]
async fn no_form_is_smuggled_through_nginx() {
    let door = Door::open();
    door.send(call("PUT", "/orders")).await.check_status(201);
    let Some(nginx) = Nginx::start(door.listen().await).await else {
        return;
    };
    let good = text(&put("orders", "", "x"));
    let first_lines = FIRST_LINES.map(|(name, part, other)| (name, good.replacen(part, other, 1)));
    let mut count = 0;
    for server in ["strict", "lenient"] {
        let forms = FORMS.map(|form| (form.name, text_of(&form, call("POST", "/orders/messages"))));
        for (name, form) in forms.into_iter().chain(first_lines.clone()) {
            let before = seen(&door).await;
            let passed_before = nginx.passed().len();
            let smuggled = text(&call("PUT", &format!("/smuggled-{count}")));
            count += 1;
            nginx
                .exchange(server, format!("{form}{smuggled}").as_bytes())
                .await;
            // The connection to the front end is kept: this request uses the same one.
            let honest = call("GET", "/orders?comp=metadata")
                .header("x-ms-client-request-id", &format!("honest-{count}"))
                .header("Connection", "close");
            let answer = nginx.exchange(server, text(&honest).as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{name}: {answer}");
            let own = format!("x-ms-client-request-id: honest-{count}\r\n");
            assert!(answer.contains(&own), "{name}: {answer}");
            let seen = seen(&door).await - before;
            let passed = nginx.passed_once(passed_before + seen).await;
            let passed = &passed[passed_before..];
            assert!(
                seen <= passed.len(),
                "{server}, {name}: {seen} requests were seen, and these were forwarded: {passed:?}"
            );
        }
    }
    let passed: BTreeSet<String> = nginx.passed().into_iter().collect();
    let list = door.send(call("GET", "/?comp=list")).await;
    for queue in list.elements("Name") {
        let made = format!("PUT|/devstoreaccount1/{queue}");
        assert!(queue == "orders" || passed.contains(&made), "{queue}");
    }
    say(&format!(
        "forms_through_nginx={count} passed_on={}",
        passed.len()
    ));
}
