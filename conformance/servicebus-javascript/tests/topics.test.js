// Topics and subscriptions. They are administered over HTTPS only.
"use strict";

const assert = require("node:assert/strict");
const { describe, test } = require("node:test");
const { ServiceBusAdministrationClient } = require("@azure/service-bus");
const { bodies, connect, connectionString, doors, drop, put, take } = require("../lib/kew.js");

const skip = process.env.KEW_BUS_HTTPS ? false : "no port 443";
const admin = new ServiceBusAdministrationClient(connectionString("amqps"), { retryOptions: { maxRetries: 0 } });

// All run at once, through one door after the other, each with a topic of its own.
function scenarios(all) {
  for (const door of doors) {
    describe(door, { skip, concurrency: true }, () => {
      Object.entries(all).forEach(([name, scenario], number) => {
        test(name, async () => {
          const topic = `x-topic-${number}-of-javascript-over-${door}`;
          await admin.createTopic(topic);
          const client = connect(door);
          try {
            await scenario(client, topic);
          } finally {
            await client.close();
          }
          await admin.deleteTopic(topic);
        });
      });
    });
  }
}

// A subscription that has this rule and no other.
function subscribe(topic, name, filter, action) {
  return admin.createSubscription(topic, name, { defaultRuleOptions: { name: "r", filter, action } });
}

async function peeked(client, topic, name, options) {
  return client.createReceiver(topic, name, options).peekMessages(10);
}

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
    await admin.createSubscription(topic, "s", { requiresSession: true });
    await put(client, topic, { body: "a", sessionId: "first" }, { body: "b", sessionId: "second" }, "without");
    const named = await client.acceptSession(topic, "s", "second");
    assert.equal((await drop(named)).body, "b");
    const next = await client.acceptNextSession(topic, "s");
    assert.deepEqual([next.sessionId, (await drop(next)).body], ["first", "a"]);
    await next.setSessionState("state");
    assert.equal(await next.getSessionState(), "state");
    const letter = await drop(client.createReceiver(topic, "s", { subQueueType: "deadLetter" }));
    assert.equal(letter.body, "without");
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
    for (const name of ["plain", "also-plain"]) await admin.createRule(topic, "s", name, { sqlExpression: "1=1" });
    await subscribe(topic, "fails", { sqlExpression: "10 / (whole - 1) > 0" });
    await put(client, topic, { body: "x", applicationProperties: { color: "red", whole: 1 } });
    // Both rules without an action give one copy.
    const copies = await peeked(client, topic, "s");
    assert.deepEqual(copies.map((it) => [it.subject, it.applicationProperties]), [
      [undefined, { color: "red", whole: 1 }], ["changed", { whole: 11, RuleName: "r" }],
    ]);
    const [letter] = await peeked(client, topic, "fails", { subQueueType: "deadLetter" });
    assert.equal(letter.deadLetterReason, "FilterException");
  },
});
