// The last line of a run. A scenario is a test that holds no others.

export default async function* total(events) {
  let passed = 0;
  let failed = 0;
  for await (const { type, data } of events) {
    if (type === "test:pass" && data.details.type !== "suite" && !data.skip) {
      passed += 1;
    } else if (type === "test:fail" && data.details.type !== "suite") {
      failed += 1;
    } else if (type === "test:fail" && data.details.error?.failureType !== "subtestsFailed") {
      // What goes before or after its scenarios failed.
      failed += 1;
    }
  }
  yield `${passed} passed, ${failed} failed\n`;
}
