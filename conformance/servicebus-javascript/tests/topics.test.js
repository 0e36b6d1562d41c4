// Topics and subscriptions: copies, sessions, rules.
"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");
const kew = require("../lib/kew.js");
const { bodies, deleting, drop, put, take } = kew;
const { admin, peeked, scenarios, subscribe } = require("../lib/topics.js");

// Filters and the messages that each selects, which the suites of all languages have.
const table = JSON.parse(fs.readFileSync(path.join(__dirname, "../../filters.json")));

scenarios({
  async "each subscription gets a copy of its own"(client, topic) {
    for (const name of ["one", "two"]) await admin.createSubscription(topic, name);
    await put(client, topic, "a", "b");
    assert.equal((await admin.getSubscriptionRuntimeProperties(topic, "one")).activeMessageCount, 2);
    const one = client.createReceiver(topic, "one");
    const copies = await take(one, 2);
    assert.deepEqual(bodies(copies), ["a", "b"]);
    await one.completeMessage(copies[0]);
    await one.deadLetterMessage(copies[1], { deadLetterReason: "why" });
    const letter = await drop(client.createReceiver(topic, "one", { subQueueType: "deadLetter" }));
    assert.deepEqual([letter.body, letter.deadLetterReason], ["b", "why"]);
    // The copies of the other subscription are still there.
    assert.deepEqual(bodies(await peeked(client, topic, "two")), ["a", "b"]);
    // A subscription is received from, and a topic is sent to.
    await assert.rejects(put(client, `${topic}/Subscriptions/one`, "x"), /send them to its topic/);
    await assert.rejects(client.createReceiver(topic).receiveMessages(1), /receive them from a subscription/);
  },

  async "sessions of a subscription"(client, topic) {
    for (const name of ["s", "t"]) await admin.createSubscription(topic, name, { requiresSession: true });
    const messages = [["a", "first"], ["b", "second"], ["c", "first"]].map(([body, sessionId]) => ({ body, sessionId }));
    await put(client, topic, ...messages, "without");
    const named = await client.acceptSession(topic, "s", "second");
    await assert.rejects(client.acceptSession(topic, "s", "second"), { code: "SessionCannotBeLocked" });
    assert.equal((await drop(named)).body, "b");
    const next = await client.acceptNextSession(topic, "s");
    assert.deepEqual([next.sessionId, bodies(await take(next, 2))], ["first", ["a", "c"]]);
    await next.setSessionState("state");
    assert.equal(await next.getSessionState(), "state");
    // The sessions of the other subscription are its own.
    const other = await client.acceptSession(topic, "t", "first");
    assert.deepEqual([await other.getSessionState(), bodies(await other.peekMessages(10))], [null, ["a", "c"]]);
    for (const name of ["s", "t"]) {
      const letter = await drop(client.createReceiver(topic, name, { subQueueType: "deadLetter" }));
      assert.deepEqual([letter.body, letter.deadLetterReason], ["without", "Session id is null."]);
    }
  },

  async "the default rule is a rule like others"(client, topic) {
    await admin.createSubscription(topic, "s");
    const rule = await admin.getRule(topic, "s", "$Default");
    assert.deepEqual([rule.name, rule.filter.sqlExpression], ["$Default", "1=1"]);
    await put(client, topic, "all");
    await admin.deleteRule(topic, "s", "$default");
    await put(client, topic, "none");
    await admin.createRule(topic, "s", "$Default", { subject: "yes" });
    await put(client, topic, { body: "selected", subject: "yes" }, { body: "not", subject: "no" });
    await admin.updateRule(topic, "s", { ...rule, filter: { sqlExpression: "sys.Label = 'no'" } });
    await put(client, topic, { body: "not", subject: "yes" }, { body: "updated", subject: "no" });
    assert.deepEqual(bodies(await peeked(client, topic, "s")), ["all", "selected", "updated"]);
  },

  async "each field of a correlation filter"(client, topic) {
    const fields = {
      correlationId: "c", messageId: "m", to: "t", replyTo: "r", subject: "l", sessionId: "s", replyToSessionId: "rs",
      contentType: "text/plain", applicationProperties: { n: 1, color: "red" },
    };
    const others = { applicationProperties: { n: 2, color: "red" } };
    const all = Object.keys(fields);
    for (const name of all) await subscribe(topic, name, { [name]: fields[name] });
    await subscribe(topic, "all", fields);
    await subscribe(topic, "case", { subject: "L" });
    await subscribe(topic, "text", { applicationProperties: { n: "1" } });
    await put(client, topic, { body: "whole", ...fields });
    // Each message differs in one field.
    for (const name of all) await put(client, topic, { body: name, ...fields, [name]: others[name] ?? "other" });
    for (const name of all) {
      const expected = ["whole", ...all.filter((it) => it !== name)];
      assert.deepEqual(bodies(await peeked(client, topic, name)), expected, name);
    }
    assert.deepEqual(bodies(await peeked(client, topic, "all")), ["whole"]);
    for (const name of ["case", "text"]) assert.deepEqual(await peeked(client, topic, name), [], name);
  },

  // The values of properties, parameters and filters are those that this SDK sends.
  async "filters select by the values of the SDK"(client, topic) {
    const at = new Date("2020-07-05T11:12:13Z");
    const filters = {
      whole: { sqlExpression: "whole = 3 AND part = 1.5" },
      flag: { sqlExpression: "flag = TRUE AND color LIKE 'r%'" },
      when: { sqlExpression: "at = @at", sqlParameters: { "@at": at } },
      number: { sqlExpression: "whole > @low", sqlParameters: { "@low": 2 } },
      property: { applicationProperties: { color: "red", whole: 3 } },
      system: { subject: "order", contentType: "text/plain" },
    };
    for (const [name, filter] of Object.entries(filters)) await subscribe(topic, name, filter);
    await subscribe(topic, "nothing", { sqlExpression: "1=0" });
    const applicationProperties = { whole: 3, part: 1.5, flag: true, color: "red", at };
    await put(client, topic, { body: "yes", subject: "order", contentType: "text/plain", applicationProperties }, "no");
    for (const name of Object.keys(filters)) {
      assert.deepEqual(bodies(await peeked(client, topic, name)), ["yes"], name);
    }
    assert.deepEqual(await peeked(client, topic, "nothing"), []);
  },

  async "actions change copies"(client, topic) {
    await subscribe(topic, "s", { sqlExpression: "color = 'red'" }, {
      sqlExpression: "SET whole = whole + @more; SET sys.Label = 'changed'; REMOVE color", sqlParameters: { "@more": 10 },
    });
    const all = { sqlExpression: "1=1" };
    for (const name of ["plain", "also-plain"]) await admin.createRule(topic, "s", name, all);
    await admin.createRule(topic, "s", "second", all, { sqlExpression: "SET sys.To = 'there'" });
    await admin.createRule(topic, "s", "unused", { sqlExpression: "color = 'blue'" }, { sqlExpression: "SET a = 1" });
    await put(client, topic, { body: "x", applicationProperties: { color: "red", whole: 1 } });
    // The rules without an action give one copy, and each other rule gives its own.
    const copies = await peeked(client, topic, "s");
    assert.deepEqual(copies.map((it) => [it.subject, it.to, it.applicationProperties]), [
      [undefined, undefined, { color: "red", whole: 1 }],
      ["changed", undefined, { whole: 11, RuleName: "r" }],
      [undefined, "there", { color: "red", whole: 1, RuleName: "second" }],
    ]);
  },

  async "a filter that fails gives a dead letter if the subscription asks for it"(client, topic) {
    for (const deadLetteringOnFilterEvaluationExceptions of [true, false]) {
      const name = `${deadLetteringOnFilterEvaluationExceptions}`;
      await admin.createSubscription(topic, name, {
        deadLetteringOnFilterEvaluationExceptions,
        defaultRuleOptions: { name: "fails", filter: { sqlExpression: "10 / n > 0" } },
      });
    }
    const messages = [0, 2].map((n) => ({ body: n, applicationProperties: { n } }));
    await put(client, topic, ...messages);
    for (const name of ["true", "false"]) assert.deepEqual(bodies(await peeked(client, topic, name)), [2], name);
    const [letter, ...more] = await peeked(client, topic, "true", { subQueueType: "deadLetter" });
    assert.deepEqual([letter.body, letter.deadLetterReason, more], [0, "FilterException", []]);
    assert.match(letter.deadLetterErrorDescription, /division by zero/);
    assert.deepEqual(await peeked(client, topic, "false", { subQueueType: "deadLetter" }), []);
  },
});

// What a filter selects does not depend on the way to the server.
scenarios({
  // Each filter is a rule with an action, which gives a copy with the name of the rule.
  async "what SQL filters select"(client, topic) {
    await subscribe(topic, "s", { sqlExpression: "1=0" });
    const expected = {};
    for (const [sqlExpression, selected] of Object.values(table.selects).flatMap(Object.entries)) {
      const name = `r${Object.keys(expected).length}`;
      await admin.createRule(topic, "s", name, { sqlExpression }, { sqlExpression: "SET seen = TRUE" });
      expected[name] = [sqlExpression, selected];
    }
    await put(client, topic, ...table.messages);
    const found = Object.fromEntries(Object.entries(expected).map(([name, [filter]]) => [name, [filter, []]]));
    const count = Object.values(expected).reduce((sum, [, selected]) => sum + selected.length, 0);
    const receiver = client.createReceiver(topic, "s", deleting());
    for (const { body, applicationProperties } of await take(receiver, count)) {
      assert.equal(applicationProperties.seen, true);
      found[applicationProperties.RuleName][1].push(body);
    }
    assert.deepEqual(found, expected);
    assert.equal((await admin.getSubscriptionRuntimeProperties(topic, "s")).totalMessageCount, 0);
  },
}, ["amqp"], "selected");

kew.scenarios({
  async "a topic of the configuration file"(client, door) {
    const topic = `configured-${door}`;
    const message = (color, size) => ({
      body: color, messageId: color, subject: "order", applicationProperties: { color, size },
    });
    await put(client, topic, message("red", 1), message("blue", 9), message("red", 9));
    const shown = async (name) => {
      const copies = await peeked(client, topic, name);
      return copies.map(({ body, applicationProperties: { size, RuleName } }) => [body, size, RuleName]);
    };
    // It drops duplicates.
    assert.deepEqual(await shown("all"), [["red", 1, undefined], ["blue", 9, undefined]]);
    assert.deepEqual(await shown("red"), [["red", 1, undefined]]);
    assert.deepEqual(await shown("large"), [["blue", 5, "size"]]);
    const receiver = client.createReceiver(topic, "all");
    for (let count = 0; count < 3; count++) {
      const [first] = await take(receiver);
      assert.equal((first.expiresAtUtc - first.enqueuedTimeUtc) / 60_000, 30);
      await receiver.abandonMessage(first);
    }
    const letter = await drop(client.createReceiver(topic, "all", { subQueueType: "deadLetter" }));
    assert.deepEqual([letter.body, letter.deadLetterReason], ["red", "MaxDeliveryCountExceeded"]);
  },
});
