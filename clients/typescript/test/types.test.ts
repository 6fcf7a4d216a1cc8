/** What the compiler refuses: `npm test` fails where one of these lines is accepted. */

import { test } from "node:test";

import type { Payloads, RecordedSession } from "../src/index.js";

function misuses(session: RecordedSession): void {
  // @ts-expect-error no such reason
  session.end("bored");
  // @ts-expect-error a text is needed
  session.event("user_message", {});
  // @ts-expect-error the key is `prompt`
  session.modelCall({ usage: { prompt_tokens: 3 } });
  // @ts-expect-error neither known nor `x_…`
  session.event("mine", {});
  // @ts-expect-error no such kind of feedback
  session.feedback("call", "applause");
}

test("types are those of the schemas", () => {
  const edit: Payloads["edit"] = { path: "a", before: "", after: "b" };
  void edit;
  void misuses;
});
