// How many scenarios ran. A scenario is a test that holds no others.

export default async function* total(events) {
  let passed = 0;
  let failed = 0;
  let skipped = 0;
  for await (const { type, data } of events) {
    // A skipped suite does not report its scenarios.
    if (type === "test:pass" && data.skip !== undefined) {
      skipped += 1;
    } else if (type === "test:pass" && data.details.type !== "suite") {
      passed += 1;
    } else if (type === "test:fail" && data.details.type !== "suite") {
      failed += 1;
    } else if (type === "test:fail" && data.details.error?.failureType !== "subtestsFailed") {
      // The setup or the cleanup of its scenarios failed.
      failed += 1;
    }
  }
  yield `${passed} passed, ${failed} failed, ${skipped} skipped\n`;
}
