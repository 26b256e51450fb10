// Checks AsyncAPI documents with the AsyncAPI project's own parser.
//
//   check.mjs DOCUMENT            the document has to be without a fault
//   check.mjs --self-test DOCUMENT   breaks it in several ways, each of which has to be noticed

import { readFileSync } from "node:fs";
import { Parser } from "@asyncapi/parser";
import Ajv from "ajv";

const MOST_SERIOUS_IGNORED = 2; // information and hints: severities 0 and 1 are errors and warnings

async function faults(text) {
  const { document, diagnostics } = await new Parser().parse(text);
  const found = diagnostics.filter((diagnostic) => diagnostic.severity < MOST_SERIOUS_IGNORED);
  if (!document && found.length === 0) {
    return ["there is no document"];
  }
  const said = found.map(({ message, path, code }) => `${path.join(".")}: ${message} (${code})`);
  return document ? [...said, ...wrongExamples(document)] : said;
}

// The parser itself does not look whether examples fit.
function wrongExamples(document) {
  const schemas = new Ajv({ strict: false, validateFormats: false });
  return document.components().messages().all().flatMap((message) => {
    const fits = schemas.compile(message.payload().json());
    const examples = message.examples().all();
    const wrong = examples.filter((example) => !fits(example.payload()));
    const none = examples.length === 0 ? [`${message.id()} has no example`] : [];
    return [...none, ...wrong.map((example) => `${message.id()}: ${JSON.stringify(example.payload())} does not fit`)];
  });
}

const BREAKS = [
  ["a member that has to be there", (text) => text.replace(/^ {2}title:.*\n/m, "")],
  ["a reference that leads nowhere", (text) => text.replace("messages/ok'", "messages/okay'")],
  ["an action there is not", (text) => text.replace("action: send", "action: shout")],
  ["an example that does not fit its schema", (text) => text.replace("attempt: 1, ack", "attempt: 0, ack")],
  ["an example of another operation", (text) => text.replace("payload: {op: PAUSE", "payload: {op: RESUME")],
  ["text that is no YAML", (text) => text.replace("channels:", "channels: [")],
];

const selfTest = process.argv[2] === "--self-test";
const file = process.argv[selfTest ? 3 : 2];
const text = readFileSync(file, "utf8");
let failed = false;
for (const fault of await faults(text)) {
  console.error(`${file}: ${fault}`);
  failed = true;
}
if (selfTest && !failed) {
  for (const [what, breakIt] of BREAKS) {
    const broken = breakIt(text);
    if (broken === text || (await faults(broken)).length === 0) {
      console.error(`not noticed: ${what}`);
      failed = true;
    }
  }
}
if (failed) {
  process.exit(1);
}
console.log(`${file} is valid${selfTest ? `, and ${BREAKS.length} broken copies are not` : ""}`);
