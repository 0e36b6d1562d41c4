// Administration, which is over HTTPS only.
"use strict";

const assert = require("node:assert/strict");
const { describe, test } = require("node:test");
const { ServiceBusAdministrationClient } = require("@azure/service-bus");
const { connect, connectionString, doors, drop, put, sleep, take } = require("../lib/kew.js");

const skip = process.env.KEW_BUS_HTTPS ? false : "no port 443";
const client = (text = connectionString("amqps")) =>
  new ServiceBusAdministrationClient(text, { retryOptions: { maxRetries: 0 } });

describe("https", { skip }, () => {
  test("a queue is made, changed and deleted", async () => {
    const admin = client();
    const name = "X.Made.By/JavaScript";
    const made = await admin.createQueue(name, {
      lockDuration: "PT30S", maxDeliveryCount: 4, requiresSession: true, defaultMessageTimeToLive: "PT1H",
      deadLetteringOnMessageExpiration: true, userMetadata: "a < b & c",
    });
    assert.equal(made.lockDuration, "PT30S");
    await assert.rejects(admin.createQueue(name), { statusCode: 409 });
    assert.equal(await admin.queueExists(name), true);
    const queue = await admin.getQueue(name);
    assert.equal(queue.name.toLowerCase(), name.toLowerCase());
    assert.deepEqual(
      [queue.maxDeliveryCount, queue.requiresSession, queue.defaultMessageTimeToLive, queue.userMetadata, queue.status],
      [4, true, "PT1H", "a < b & c", "Active"],
    );
    await admin.updateQueue({ ...queue, maxDeliveryCount: 9, status: "SendDisabled" });
    assert.equal((await admin.getQueue(name)).maxDeliveryCount, 9);
    const bus = connect("amqps");
    const message = { body: "x", sessionId: "s" };
    await assert.rejects(put(bus, name, message), { code: "MessagingEntityDisabled" });
    await admin.updateQueue({ ...queue, status: "Active" });
    await put(bus, name, message, message);
    const counts = await admin.getQueueRuntimeProperties(name);
    assert.equal(counts.activeMessageCount, 2);
    await admin.deleteQueue(name);
    assert.equal(await admin.queueExists(name), false);
    await assert.rejects(admin.getQueue(name), { statusCode: 404 });
    await assert.rejects(admin.deleteQueue(name), { statusCode: 404 });
    await assert.rejects(put(bus, name, message), { code: "MessagingEntityNotFound" });
    await bus.close();
  });

  test("a topic and its subscription are made, changed, listed and deleted", async () => {
    const admin = client();
    const name = "x-topic-of-javascript";
    const topic = await admin.createTopic(name, { userMetadata: "a < b & c", maxSizeInMegabytes: 2048 });
    await assert.rejects(admin.createTopic(name), { statusCode: 409 });
    const hour = await admin.updateTopic({ ...topic, defaultMessageTimeToLive: "PT1H", supportOrdering: false });
    assert.deepEqual(
      [hour.name, hour.defaultMessageTimeToLive, hour.supportOrdering, hour.userMetadata, hour.maxSizeInMegabytes],
      [name, "PT1H", false, "a < b & c", 2048],
    );
    await assert.rejects(admin.updateTopic({ ...hour, requiresDuplicateDetection: true }), /cannot be changed/);
    await assert.rejects(admin.updateTopic({ ...hour, name: `${name}-missing` }), { statusCode: 404 });
    const made = await admin.createSubscription(name, "All", { maxDeliveryCount: 3 });
    assert.deepEqual([made.topicName, made.subscriptionName, made.maxDeliveryCount], [name, "All", 3]);
    const queue = `${name}-next`;
    await admin.createQueue(queue);
    const changed = await admin.updateSubscription({
      ...made, lockDuration: "PT30S", forwardTo: queue, deadLetteringOnFilterEvaluationExceptions: false,
    });
    assert.deepEqual(
      [changed.lockDuration, changed.deadLetteringOnFilterEvaluationExceptions, changed.maxDeliveryCount],
      ["PT30S", false, 3],
    );
    assert.match((await admin.getSubscription(name, "all")).forwardTo, new RegExp(`/${queue}$`));
    const bus = connect("amqps");
    await put(bus, name, "one");
    const receiver = bus.createReceiver(queue);
    assert.equal((await drop(receiver)).body, "one");
    await bus.close();
    await assert.rejects(admin.updateSubscription({ ...changed, requiresSession: true }), /cannot be changed/);
    const { value: subscriptions } = await admin.listSubscriptions(name).byPage().next();
    assert.deepEqual([...subscriptions].map((it) => it.subscriptionName), ["All"]);
    const { value: counts } = await admin.listSubscriptionsRuntimeProperties(name).byPage().next();
    assert.deepEqual([...counts].map((it) => it.activeMessageCount), [0]);
    assert.equal((await admin.getTopicRuntimeProperties(name)).subscriptionCount, 1);
    await admin.deleteTopic(name);
    assert.equal(await admin.subscriptionExists(name, "All"), false);
    assert.equal(await admin.topicExists(name), false);
    await admin.deleteQueue(queue);
  });

  test("rules are made, changed, listed and deleted", async () => {
    const admin = client();
    const topic = "x-ruled-topic-of-javascript";
    await admin.createTopic(topic);
    const sql = { sqlExpression: "n = @n", sqlParameters: { "@n": 5, "@t": "t", "@b": true, "@d": new Date(5000) } };
    await admin.createSubscription(topic, "s", { defaultRuleOptions: { name: "First", filter: sql } });
    const made = await admin.getRule(topic, "s", "first");
    assert.deepEqual([made.name, made.filter], ["First", sql]);
    await assert.rejects(admin.createRule(topic, "s", "FIRST", { sqlExpression: "1=1" }), { statusCode: 409 });
    const filter = { correlationId: "c", subject: "l", applicationProperties: { color: "red", size: 1.5, on: false } };
    const action = { sqlExpression: "SET a = @n", sqlParameters: { "@n": 1 } };
    const second = await admin.createRule(topic, "s", "Second", filter, action);
    assert.deepEqual([second.name, second.action], ["Second", action]);
    assert.deepEqual({ ...second.filter, ...filter }, second.filter);
    const changed = await admin.updateRule(topic, "s", { ...second, filter: { sqlExpression: "1=0" }, action: {} });
    assert.deepEqual([changed.filter.sqlExpression, changed.action.sqlExpression], ["1=0", undefined]);
    const names = [];
    for await (const page of admin.listRules(topic, "s").byPage({ maxPageSize: 1 })) {
      names.push([...page].map((it) => it.name));
    }
    assert.deepEqual(names, [["First"], ["Second"]]);
    await assert.rejects(admin.createRule(topic, "s", "bad", { sqlExpression: "n =" }), /column 4/);
    await admin.deleteRule(topic, "s", "second");
    assert.equal(await admin.ruleExists(topic, "s", "Second"), false);
    assert.equal(await admin.ruleExists(topic, "s", "First"), true);
    await assert.rejects(admin.deleteRule(topic, "s", "Second"), { statusCode: 404 });
    await assert.rejects(admin.createRule(topic, "missing", "r", { sqlExpression: "1=1" }), { statusCode: 404 });
    await admin.deleteTopic(topic);
  });

  for (const door of doors) {
    test(`a rule manager adds, lists and deletes rules over ${door}`, async () => {
      const admin = client();
      const topic = `x-managed-topic-over-${door}`;
      await admin.createTopic(topic);
      await admin.createSubscription(topic, "s");
      const bus = connect(door);
      try {
        const rules = bus.createRuleManager(topic, "s");
        const all = async () => {
          const found = [];
          for await (const page of rules.listRules().byPage({ maxPageSize: 2 })) found.push(...page);
          return found;
        };
        assert.deepEqual(await all(), [{ name: "$Default", filter: { sqlExpression: "1=1" }, action: {} }]);
        await rules.deleteRule("$Default");
        assert.deepEqual(await all(), []);
        const filter = {
          correlationId: "c", messageId: "m", to: "t", replyTo: "r", subject: "l", sessionId: "s",
          replyToSessionId: "rs", contentType: "ct", applicationProperties: { text: "red", whole: 3, part: 1.5, on: true },
        };
        await rules.createRule("a", filter, { sqlExpression: "SET a = 1" });
        await rules.createRule("b", { sqlExpression: "color = 'blue'" });
        await rules.createRule("c", { subject: "only" });
        const [a, b, c] = await all();
        assert.deepEqual(a, { name: "a", filter, action: { sqlExpression: "SET a = 1" } });
        assert.deepEqual(b, { name: "b", filter: { sqlExpression: "color = 'blue'" }, action: {} });
        assert.deepEqual([c.name, c.filter.subject, c.filter.applicationProperties], ["c", "only", {}]);
        // The administration client sees the same.
        assert.deepEqual((await admin.getRule(topic, "s", "b")).filter.sqlExpression, "color = 'blue'");
        await assert.rejects(rules.createRule("A", { sqlExpression: "1=1" }), { code: "MessagingEntityAlreadyExists" });
        await assert.rejects(rules.createRule("d", { sqlExpression: "color =" }), /column 8/);
        await assert.rejects(rules.deleteRule("d"), { code: "MessagingEntityNotFound" });
        const missing = bus.createRuleManager(topic, "missing");
        await assert.rejects(missing.createRule("r", { sqlExpression: "1=1" }), { code: "MessagingEntityNotFound" });
      } finally {
        await bus.close();
      }
      await admin.deleteTopic(topic);
    });
  }

  test("links that are there hear of changes", async () => {
    const admin = client();
    const name = "x-changed-by-javascript";
    const queue = await admin.createQueue(name);
    const bus = connect("amqps");
    const setStatus = (status) => admin.updateQueue({ ...queue, status });
    // The error of a waiting receiver when the queue is changed.
    const waitingHears = async (change) => {
      const receiver = bus.createReceiver(name);
      const told = new Promise((resolve) => {
        receiver.subscribe({ async processMessage() {}, processError: async ({ error }) => resolve(error) });
      });
      // It is receiving by then.
      await put(bus, name, "x");
      while ((await admin.getQueueRuntimeProperties(name)).totalMessageCount) await sleep(50);
      await change();
      const { code } = await told;
      await receiver.close();
      return code;
    };
    try {
      const sender = bus.createSender(name);
      await sender.sendMessages({ body: "before" });
      await setStatus("SendDisabled");
      // A send during the detach of its link waits for its own time-out: the SDK forgets to end it.
      while (sender._sender.isOpen()) await sleep(20);
      await assert.rejects(sender.sendMessages({ body: "meanwhile" }), { code: "MessagingEntityDisabled" });
      assert.equal((await drop(bus.createReceiver(name))).body, "before");
      await setStatus("Active");
      await sender.sendMessages({ body: "after" });
      assert.equal((await drop(bus.createReceiver(name))).body, "after");
      assert.equal(await waitingHears(() => setStatus("ReceiveDisabled")), "MessagingEntityDisabled");
      await setStatus("Active");
      assert.equal(await waitingHears(() => admin.deleteQueue(name)), "MessagingEntityNotFound");
    } finally {
      await bus.close();
    }
  });

  test("a full queue takes no more until something is taken out", async () => {
    const admin = client();
    const name = "x-filled-by-javascript";
    await admin.createQueue(name, { maxSizeInMegabytes: 1 });
    const bus = connect("amqps");
    try {
      const sender = bus.createSender(name);
      const messages = Array(5).fill({ body: Buffer.alloc(100_000) });
      const fill = async () => {
        for (let i = 0; i < 10; i++) await sender.sendMessages(messages);
      };
      await assert.rejects(fill(), { code: "QuotaExceeded" });
      await take(bus.createReceiver(name, { receiveMode: "receiveAndDelete" }), 5);
      await sender.sendMessages({ body: "fits" });
    } finally {
      await bus.close();
    }
    await admin.deleteQueue(name);
  });

  test("queues are listed in pages", async () => {
    const names = new Set();
    let pages = 0;
    for await (const page of client().listQueues().byPage()) {
      pages++;
      for (const queue of page) names.add(queue.name);
    }
    assert.ok(pages >= 5 && names.has("plain-1") && names.has("plain-100") && names.has("session-50"), pages);
    for await (const queue of client().listQueuesRuntimeProperties()) {
      if (queue.name === "hop-2") assert.equal(queue.totalMessageCount, 0);
    }
  });

  test("rules of a queue", async () => {
    const admin = client();
    const key = "bm9ib2R5IGtub3dzIHRoaXMga2V5LCBvZiBjb3Vyc2U=";
    const rule = { claimType: "SharedAccessKey", accessRights: ["Send"], keyName: "senders", primaryKey: key, secondaryKey: key };
    await admin.createQueue("x-ruled-by-javascript", { authorizationRules: [rule] });
    const [found] = (await admin.getQueue("x-ruled-by-javascript")).authorizationRules;
    assert.deepEqual([found.keyName, found.accessRights], ["senders", ["Send"]]);
    const [endpoint] = connectionString("amqps").split(";");
    const bus = connect("amqps", `${endpoint};SharedAccessKeyName=senders;SharedAccessKey=${key}`);
    await put(bus, "x-ruled-by-javascript", "x");
    await assert.rejects(bus.createReceiver("x-ruled-by-javascript").receiveMessages(1), { code: "UnauthorizedAccess" });
    await bus.close();
    await admin.deleteQueue("x-ruled-by-javascript");
  });

  test("the namespace, and a wrong key", async () => {
    assert.equal((await client().getNamespaceProperties()).name, "sbemulatorns");
    const stranger = client(connectionString("amqps").replace("SharedAccessKey=", "SharedAccessKey=x"));
    await assert.rejects(stranger.getQueue("plain-1"), { statusCode: 401 });
  });
});
