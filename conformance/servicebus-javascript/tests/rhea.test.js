// rhea alone: an AMQP 1.0 client without knowledge of Service Bus.
"use strict";

const assert = require("node:assert/strict");
const { describe, test } = require("node:test");
const rhea = require("rhea");
const { fresh } = require("../lib/kew.js");

const endpoint = new URL(/Endpoint=([^;]*)/.exec(process.env.KEW_BUS_CONNECTION_STRING)[1].replace("sb:", "http:"));
const [username, password] = ["SharedAccessKeyName", "SharedAccessKey"].map(
  (name) => new RegExp(`${name}=([^;]*)`).exec(process.env.KEW_BUS_CONNECTION_STRING)[1],
);
const doors = {
  amqp: { host: "127.0.0.1", port: endpoint.port },
  amqps: { host: process.env.KEW_BUS_HOST, port: 5671, transport: "tls" },
};

// The next event with this name; a link that is closed meanwhile ends the wait.
function once(emitter, name) {
  return new Promise((resolve, reject) => {
    emitter.once(name, resolve);
    for (const end of ["receiver_close", "sender_close", "connection_close", "disconnected"]) {
      if (end !== name) emitter.once(end, (context) => reject(context[end.split("_")[0]]?.error ?? new Error(end)));
    }
  });
}

async function connect(door, options = { username, password }) {
  const connection = rhea.create_container().connect({ ...door, reconnect: false, ...options });
  connection.on("error", () => {});
  await once(connection, "connection_open");
  return connection;
}

async function sender(connection, address, options = {}) {
  const link = connection.open_sender({ target: { address }, ...options });
  await once(link, "sendable");
  return link;
}

// Gives no credit and settles nothing automatically.
async function receiver(connection, address, options = {}) {
  const link = connection.open_receiver({
    source: { address }, credit_window: 0, autoaccept: false, autosettle: false, rcv_settle_mode: 1, snd_settle_mode: 0,
    ...options,
  });
  await once(link, "receiver_open");
  return link;
}

async function send(link, ...bodies) {
  for (const body of bodies) {
    const sent = link.send({ body });
    await new Promise((resolve, reject) => {
      const done = (context) => {
        if (context.delivery !== sent) return;
        for (const name of ["accepted", "rejected"]) link.removeListener(name, done);
        if (context.delivery.remote_state.error) reject(context.delivery.remote_state.error);
        else resolve();
      };
      link.on("accepted", done);
      link.on("rejected", done);
    });
  }
}

function take(link, count = 1) {
  return new Promise((resolve, reject) => {
    const taken = [];
    const took = ({ message, delivery }) => {
      taken.push({ message, delivery });
      if (taken.length === count) {
        link.removeListener("message", took);
        resolve(taken);
      }
    };
    link.on("message", took);
    link.once("receiver_close", () => reject(link.error));
    link.add_credit(count);
  });
}

// Sends an outcome, and waits until the server has settled with the same one.
async function settle({ delivery }, name, ...params) {
  const settled = new Promise((resolve) => {
    delivery.link.on("settled", (context) => context.delivery === delivery && resolve());
  });
  delivery[name](...params);
  await settled;
  const { accepted, rejected, released, modified } = rhea.message;
  const expected = { accept: accepted, reject: rejected, release: released, modified }[name];
  assert.equal(delivery.remote_state.described().descriptor.value, expected({}).described().descriptor.value);
  assert.ok(!delivery.remote_state.error);
}

function drained(link, credit) {
  const done = once(link, "receiver_drained");
  link.drain = true;
  link.add_credit(credit);
  return done;
}

const scenarios = {
  async "every outcome"(door) {
    const queue = fresh();
    const connection = await connect(door);
    await send(await sender(connection, queue), "release", "modify", "reject", "accept");
    const link = await receiver(connection, queue);
    const [release, modify, reject, accept] = await take(link, 4);
    assert.equal(release.delivery.tag.length, 16);
    await settle(release, "release");
    await settle(modify, "modified", { delivery_failed: true });
    await settle(reject, "reject");
    await settle(accept, "accept");
    const again = await take(link, 2);
    assert.deepEqual(again.map(({ message }) => message.body), ["release", "modify"]);
    assert.deepEqual(again.map(({ message }) => message.delivery_count ?? 0), [0, 1]);
    const letters = await receiver(connection, `${queue}/$deadletterqueue`);
    assert.equal((await take(letters))[0].message.body, "reject");
    connection.close();
    await once(connection, "connection_close");
  },

  async "drains with nothing, something and all"(door) {
    const queue = fresh();
    const connection = await connect(door);
    const into = await sender(connection, queue);
    const link = await receiver(connection, queue, { snd_settle_mode: 1, rcv_settle_mode: 0 });
    let seen = 0;
    link.on("message", () => seen++);
    for (const count of [0, 1, 5, 3]) {
      const before = seen;
      await send(into, ...Array(count).fill("x"));
      await drained(link, 5);
      link.drain = false;
      assert.equal(seen - before, count);
      assert.equal(link.credit, 0);
    }
    connection.close();
  },

  async "many frames"(door) {
    const queue = fresh();
    const connection = await connect(door, { username, password, max_frame_size: 4096 });
    const body = rhea.message.data_section(Buffer.alloc(600_000, 7));
    await send(await sender(connection, queue), body);
    const [{ message }] = await take(await receiver(connection, queue));
    assert.equal(message.body.content.length, 600_000);
    connection.close();
  },

  async "settled sends, and receives that settle nothing"(door) {
    const queue = fresh();
    const connection = await connect(door);
    const into = await sender(connection, queue, { snd_settle_mode: 1 });
    for (let i = 0; i < 20; i++) into.send({ body: i });
    const link = await receiver(connection, queue, { snd_settle_mode: 1, rcv_settle_mode: 0 });
    const all = await take(link, 20);
    assert.deepEqual(all.map(({ message }) => message.body), [...Array(20).keys()]);
    assert.ok(all.every(({ delivery }) => delivery.remote_settled));
    connection.close();
  },

  async "no more than there is credit for"(door) {
    const queue = fresh();
    const connection = await connect(door);
    await send(await sender(connection, queue), ..."abcde");
    const link = await receiver(connection, queue);
    let seen = 0;
    link.on("message", () => seen++);
    await take(link, 2);
    assert.equal(seen, 2);
    await drained(link, 1);
    assert.equal(seen, 3);
    connection.close();
  },

  async "what is not there"(door) {
    const connection = await connect(door);
    const missing = { condition: "amqp:not-found" };
    await assert.rejects(sender(connection, "absent"), missing);
    const link = connection.open_receiver({ source: { address: "absent" } });
    await once(link, "receiver_close");
    assert.equal(link.error.condition, "amqp:not-found");
    await sender(connection, fresh());
    connection.close();
  },

  async "a name and its key, or nothing"(door) {
    (await connect(door)).close();
    await assert.rejects(connect(door, { username, password: "wrong" }));
    // An anonymous client can connect, but do nothing.
    const connection = await connect(door, { username: undefined });
    await assert.rejects(sender(connection, fresh()), { condition: "amqp:unauthorized-access" });
    connection.close();
  },
};

for (const [name, door] of Object.entries(doors)) {
  describe(name, { concurrency: true }, () => {
    for (const [what, scenario] of Object.entries(scenarios)) test(what, () => scenario(door));
  });
}
