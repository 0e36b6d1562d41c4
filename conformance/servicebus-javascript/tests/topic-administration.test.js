// The settings and states of topics and subscriptions, and lists of them.
"use strict";

const assert = require("node:assert/strict");
const { bodies, deleting, drop, put, sleep, take } = require("../lib/kew.js");
const { admin, changeSubscription, changeTopic, peeked, scenarios } = require("../lib/topics.js");

const disabled = { code: "MessagingEntityDisabled" };
const bad = { statusCode: 400 };

async function all(pages) {
  const found = [];
  for await (const page of pages) found.push([...page]);
  return found;
}

scenarios({
  async "settings come back, and those that cannot be are refused"(client, topic) {
    const never = "P10675199DT2H48M5.4775807S";
    const made = await admin.createSubscription(topic, "s");
    assert.deepEqual([(await admin.getTopic(topic)).autoDeleteOnIdle, made.autoDeleteOnIdle], [never, never]);
    assert.deepEqual([made.defaultMessageTimeToLive, made.lockDuration, made.maxDeliveryCount], [never, "PT1M", 10]);
    const changed = await changeSubscription(topic, "s", {
      autoDeleteOnIdle: "PT5M", defaultMessageTimeToLive: "PT2H", lockDuration: "PT5S", maxDeliveryCount: 1,
      deadLetteringOnMessageExpiration: true, enableBatchedOperations: false, userMetadata: "mine",
      forwardDeadLetteredMessagesTo: topic,
    });
    assert.deepEqual(changed, await admin.getSubscription(topic, "S"));
    assert.deepEqual(
      [changed.autoDeleteOnIdle, changed.defaultMessageTimeToLive, changed.lockDuration, changed.maxDeliveryCount,
        changed.deadLetteringOnMessageExpiration, changed.enableBatchedOperations, changed.userMetadata],
      ["PT5M", "PT2H", "PT5S", 1, true, false, "mine"],
    );
    assert.match(changed.forwardDeadLetteredMessagesTo, new RegExp(`^sb://.*/${topic}$`));
    assert.equal((await changeTopic(topic, { autoDeleteOnIdle: "PT10M" })).autoDeleteOnIdle, "PT10M");
    assert.equal((await admin.getTopic(topic)).autoDeleteOnIdle, "PT10M");
    await assert.rejects(changeTopic(topic, { autoDeleteOnIdle: "PT4M59S" }), bad);
    await assert.rejects(changeTopic(topic, { enablePartitioning: true }), bad);
    for (const settings of [
      { autoDeleteOnIdle: "PT4M59S" }, { lockDuration: "PT4S" }, { lockDuration: "PT5M1S" }, { maxDeliveryCount: 0 },
      { requiresSession: true }, { forwardTo: `${topic}-missing` }, { status: "SendDisabled" },
      { userMetadata: "x".repeat(1025) },
    ]) {
      await assert.rejects(changeSubscription(topic, "s", settings), bad, JSON.stringify(settings));
    }
    await assert.rejects(admin.createSubscription(topic, "x".repeat(51)), bad);
    await assert.rejects(admin.createSubscription(`${topic}-missing`, "s"), { statusCode: 404 });
    await assert.rejects(admin.createSubscription(topic, "S"), { statusCode: 409 });
    assert.deepEqual(changed, await admin.getSubscription(topic, "s"));
  },

  async "a subscription that is not received from"(client, topic) {
    await admin.createSubscription(topic, "s");
    for (const status of ["ReceiveDisabled", "Disabled"]) {
      // The error of a receiver that waits when the status changes.
      const receiver = client.createReceiver(topic, "s");
      const told = new Promise((resolve) => {
        receiver.subscribe({ async processMessage() {}, processError: async ({ error }) => resolve(error) });
      });
      await put(client, topic, "opening");
      while ((await admin.getSubscriptionRuntimeProperties(topic, "s")).totalMessageCount) await sleep(50);
      assert.equal((await changeSubscription(topic, "s", { status })).status, status);
      assert.equal((await told).code, "MessagingEntityDisabled");
      await receiver.close();
      await assert.rejects(client.createReceiver(topic, "s").receiveMessages(1), disabled);
      await assert.rejects(admin.createRule(topic, "s", "r", { sqlExpression: "1=1" }), { statusCode: 403 });
      await assert.rejects(admin.deleteRule(topic, "s", "$Default"), { statusCode: 403 });
      // It gets copies nevertheless.
      await put(client, topic, status);
      assert.equal((await admin.getSubscriptionRuntimeProperties(topic, "s")).activeMessageCount, 1);
      await changeSubscription(topic, "s", { status: "Active" });
      assert.equal((await drop(client.createReceiver(topic, "s"))).body, status);
    }
  },

  async "a topic that is not sent to"(client, topic) {
    await admin.createSubscription(topic, "s");
    await put(client, topic, "before");
    for (const status of ["SendDisabled", "Disabled"]) {
      const sender = client.createSender(topic);
      await sender.sendMessages({ body: status });
      assert.equal((await changeTopic(topic, { status })).status, status);
      // A send during the detach of its link waits for its own time-out: the SDK forgets to end it.
      while (sender._sender.isOpen()) await sleep(20);
      await assert.rejects(sender.sendMessages({ body: "not" }), disabled);
      await assert.rejects(put(client, topic, "not"), disabled);
      const receiver = client.createReceiver(topic, "s");
      if (status === "Disabled") {
        await assert.rejects(receiver.receiveMessages(1), disabled);
        await assert.rejects(admin.createRule(topic, "s", "r", { sqlExpression: "1=1" }), { statusCode: 403 });
      } else {
        // What is there can be drained.
        assert.equal((await drop(receiver)).body, "before");
        await admin.createRule(topic, "s", "r", { sqlExpression: "1=0" });
      }
      // Other settings can change.
      assert.equal((await changeSubscription(topic, "s", { userMetadata: status })).userMetadata, status);
      await changeTopic(topic, { status: "Active" });
      await sender.sendMessages({ body: `after ${status}` });
      await sender.close();
    }
    assert.deepEqual(
      bodies(await peeked(client, topic, "s")),
      ["SendDisabled", "after SendDisabled", "Disabled", "after Disabled"],
    );
    await assert.rejects(changeTopic(topic, { status: "ReceiveDisabled" }), bad);
  },

  async "a full topic takes no more until something is taken out"(client, topic) {
    await changeTopic(topic, { maxSizeInMegabytes: 1 });
    for (const name of ["one", "two"]) await admin.createSubscription(topic, name);
    const sender = client.createSender(topic);
    const message = { body: Buffer.alloc(100_000) };
    let count = 0;
    const fill = async () => {
      for (; count < 20; count++) await sender.sendMessages(message);
    };
    await assert.rejects(fill(), { code: "QuotaExceeded" });
    // Each body counts once, although two subscriptions have it.
    assert.equal(count, 10);
    const { sizeInBytes } = await admin.getTopicRuntimeProperties(topic);
    assert.ok(sizeInBytes > 1_000_000 && sizeInBytes < 1_100_000, sizeInBytes);
    for (const name of ["one", "two"]) await take(client.createReceiver(topic, name, deleting()), 5);
    await sender.sendMessages(message);
  },

  async "lists have pages, settings and counts"(client) {
    // The first of all topics, so that no other scenario moves it from one page to another.
    const topic = "a-listed-topic-of-javascript";
    await admin.createTopic(topic);
    const names = [...Array(105).keys()].map((it) => `s${`${it}`.padStart(3, "0")}`);
    for (const name of names) await admin.createSubscription(topic, name, { userMetadata: `its ${name}` });
    const pages = await all(admin.listSubscriptions(topic).byPage());
    assert.deepEqual(pages.map((it) => it.length), [100, 5]);
    assert.deepEqual(pages.flat().map((it) => [it.subscriptionName, it.userMetadata]),
      names.map((it) => [it, `its ${it}`]));
    assert.deepEqual((await all(admin.listSubscriptions(topic).byPage({ maxPageSize: 40 }))).map((it) => it.length),
      [40, 40, 25]);
    await put(client, topic, "a", "b", "c");
    const receiver = client.createReceiver(topic, "s001");
    const [first, second] = await take(receiver, 2);
    await receiver.completeMessage(first);
    await receiver.deadLetterMessage(second);
    const later = new Date(Date.now() + 3_600_000);
    await client.createSender(topic).scheduleMessages([{ body: "d" }, { body: "e" }], later);
    const shown = (it) => [it.activeMessageCount, it.deadLetterMessageCount, it.totalMessageCount];
    const listed = (await all(admin.listSubscriptionsRuntimeProperties(topic).byPage())).flat();
    assert.deepEqual(listed.slice(0, 3).map(shown), [[3, 0, 3], [1, 1, 2], [3, 0, 3]]);
    const counts = await admin.getSubscriptionRuntimeProperties(topic, "s001");
    assert.deepEqual([...shown(counts), counts.transferMessageCount, counts.transferDeadLetterMessageCount],
      [1, 1, 2, 0, 0]);
    const topics = (await all(admin.listTopicsRuntimeProperties().byPage({ maxPageSize: 2 }))).flat();
    const [found] = topics.filter((it) => it.name === topic);
    assert.deepEqual([found.subscriptionCount, found.scheduledMessageCount], [105, 2]);
    const topicNames = (await all(admin.listTopics().byPage({ maxPageSize: 2 }))).flat().map((it) => it.name);
    assert.equal(topicNames.filter((it) => it === topic).length, 1);
    await admin.deleteTopic(topic);
  },
}, ["amqps"]);
