// Runs kew as a process on a free port, and makes clients for it.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import dns from "node:dns";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe } from "node:test";
import { setTimeout as delay } from "node:timers/promises";

import {
  QueueClient,
  QueueServiceClient,
  RestError,
  StorageSharedKeyCredential,
} from "@azure/storage-queue";

const PATIENCE_MS = 30_000;

// For scenarios about the server: the test must see answers that a retry would hide.
export const NO_RETRIES = { retryOptions: { maxTries: 1 } };

// Every scenario runs through each of these.
const DOORS = {
  "http, account in the path": { scheme: "http", host: "" },
  "http, account in the host": { scheme: "http", host: "queue.localhost" },
  "https, account in the path": { scheme: "https", host: "" },
  "https, account in the host": { scheme: "https", host: "queue.localhost" },
};

// Not every resolver knows that all names under localhost are this machine.
const { lookup } = dns;
dns.lookup = (name, options, callback) =>
  lookup(name.endsWith(".localhost") ? "127.0.0.1" : name, options, callback);

class Server {
  async start() {
    this.directory = mkdtempSync(join(tmpdir(), "kew-javascript-"));
    const environment = Object.fromEntries(
      Object.entries(process.env).filter(([name]) => !name.startsWith("KEW_")),
    );
    const tls = process.env.KEW_TEST_TLS;
    const options = ["--data-dir", join(this.directory, "data"), "--queue-listen", "127.0.0.1:0"];
    options.push("--tls-cert", join(tls, "server.pem"), "--tls-key", join(tls, "server.key"));
    this.process = spawn(process.env.KEW_BINARY, ["serve", ...options], {
      env: environment,
      // Its log is kept, and the suite checks it at its end.
      stdio: ["ignore", "pipe", "ignore"],
    });
    this.ended = new Promise((resolve) => this.process.once("close", resolve));
    const late = setTimeout(() => this.process.kill("SIGKILL"), PATIENCE_MS);
    this.facts = await this.#readFacts();
    clearTimeout(late);
  }

  async #readFacts() {
    const facts = {};
    let text = "";
    for await (const chunk of this.process.stdout.iterator({ destroyOnReturn: false })) {
      text += chunk;
      const lines = text.split("\n");
      text = lines.pop();
      for (const line of lines) {
        const at = line.indexOf("=");
        facts[line.slice(0, at)] = line.slice(at + 1).replaceAll("'", "");
      }
      if (facts.KEW_READY) {
        return facts;
      }
    }
    throw new Error("kew did not become ready");
  }

  async stop() {
    this.process.kill("SIGTERM");
    const late = setTimeout(() => this.process.kill("SIGKILL"), PATIENCE_MS);
    const status = await this.ended;
    clearTimeout(late);
    rmSync(this.directory, { recursive: true, force: true });
    assert.equal(status, 0);
  }
}

let names = 0;

// One way to the server: the options of the SDK's client.
export class Door {
  constructor(server, { scheme, host }) {
    this.server = server;
    this.scheme = scheme;
    this.host = host;
  }

  get #parts() {
    const text = this.server.facts.KEW_QUEUE_CONNECTION_STRING;
    return Object.fromEntries(
      text.split(";").filter(Boolean).map((part) => {
        const at = part.indexOf("=");
        return [part.slice(0, at), part.slice(at + 1)];
      }),
    );
  }

  get port() {
    return Number(this.server.facts.KEW_QUEUE_LISTEN.split(":").pop());
  }

  get account() {
    return this.#parts.AccountName;
  }

  // The address of the account, or of its secondary; without a slash at its end.
  url({ port = this.port, secondary = false } = {}) {
    const account = this.account + (secondary ? "-secondary" : "");
    return this.host
      ? `${this.scheme}://${account}.${this.host}:${port}`
      : `${this.scheme}://127.0.0.1:${port}/${account}`;
  }

  get connectionString() {
    const { AccountName, AccountKey } = this.#parts;
    return (
      `DefaultEndpointsProtocol=${this.scheme};AccountName=${AccountName};` +
      `AccountKey=${AccountKey};QueueEndpoint=${this.url()};`
    );
  }

  get credential() {
    const { AccountName, AccountKey } = this.#parts;
    return new StorageSharedKeyCredential(AccountName, AccountKey);
  }

  get service() {
    return QueueServiceClient.fromConnectionString(this.connectionString, NO_RETRIES);
  }

  // A client of a queue that does not exist.
  absent() {
    names += 1;
    return new QueueClient(this.connectionString, `scenario-${names}`, NO_RETRIES);
  }

  // A client of a new, empty queue.
  async fresh(metadata) {
    const queue = this.absent();
    await queue.create({ metadata });
    return queue;
  }

  // The same queue, with only the credential in the address.
  bySas(address) {
    return new QueueClient(address, undefined, NO_RETRIES);
  }
}

// Scenarios with a server of their own, through every door.
export function scenarios(title, define) {
  describe(title, () => {
    const server = new Server();
    before(() => server.start());
    after(() => server.stop());
    for (const [name, door] of Object.entries(DOORS)) {
      describe(name, () => define(new Door(server, door)));
    }
  });
}

// Expects an error with this status and code, as the SDK shows it.
export async function refused(status, code, operation) {
  let error;
  try {
    await operation;
  } catch (caught) {
    error = caught;
  }
  assert.ok(error instanceof RestError, `expected ${code}, got ${error}`);
  assert.equal(error.statusCode, status, error.message);
  assert.equal(error.code ?? error.details.errorCode, code, error.message);
  assert.equal(error.details.errorCode, code);
  assert.equal(error.response.headers.get("x-ms-error-code"), code);
  assert.ok(error.response.headers.get("x-ms-request-id"));
  return error;
}

// Retries until the answer has a value.
export async function eventually(what, ask) {
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    const answer = await ask();
    if (answer) {
      return answer;
    }
    assert.ok(Date.now() < deadline, `in time: ${what}`);
    await delay(20);
  }
}
