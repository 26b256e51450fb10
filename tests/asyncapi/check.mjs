// Checks AsyncAPI documents with the AsyncAPI project's own parser.
//
//   check.mjs DOCUMENT               fails if the document has errors
//   check.mjs --self-test DOCUMENT   also breaks it in several ways and fails if one goes unnoticed

import { readFileSync } from "node:fs";
import { Parser } from "@asyncapi/parser";
import Ajv from "ajv";

const FIRST_IGNORED_SEVERITY = 2; // 0 is an error, 1 a warning, 2 information, 3 a hint

async function findErrors(text) {
  const { document, diagnostics } = await new Parser().parse(text);
  const found = diagnostics.filter((diagnostic) => diagnostic.severity < FIRST_IGNORED_SEVERITY);
  if (!document && found.length === 0) {
    return ["the parser returned no document"];
  }
  const messages = found.map(({ message, path, code }) => `${path.join(".")}: ${message} (${code})`);
  return document ? [...messages, ...wrongExamples(document)] : messages;
}

// The parser does not validate examples against their schemas.
function wrongExamples(document) {
  const schemas = new Ajv({ strict: false, validateFormats: false });
  return document.components().messages().all().flatMap((message) => {
    const isValid = schemas.compile(message.payload().json());
    const examples = message.examples().all();
    const wrong = examples.filter((example) => !isValid(example.payload()));
    const missing = examples.length === 0 ? [`${message.id()} has no example`] : [];
    return [...missing, ...wrong.map((example) => `${message.id()}: ${JSON.stringify(example.payload())} does not match its schema`)];
  });
}

const MUTATIONS = [
  ["a missing required member", (text) => text.replace(/^ {2}title:.*\n/m, "")],
  ["a dangling reference", (text) => text.replace("messages/ok'", "messages/okay'")],
  ["an unknown action", (text) => text.replace("action: send", "action: shout")],
  ["an example that does not match its schema", (text) => text.replace("attempt: 1, ack", "attempt: 0, ack")],
  ["an example of another operation", (text) => text.replace("payload: {op: PAUSE", "payload: {op: RESUME")],
  ["invalid YAML", (text) => text.replace("channels:", "channels: [")],
];

const selfTest = process.argv[2] === "--self-test";
const file = process.argv[selfTest ? 3 : 2];
const text = readFileSync(file, "utf8");
let failed = false;
for (const error of await findErrors(text)) {
  console.error(`${file}: ${error}`);
  failed = true;
}
if (selfTest && !failed) {
  for (const [name, mutate] of MUTATIONS) {
    const broken = mutate(text);
    if (broken === text || (await findErrors(broken)).length === 0) {
      console.error(`not detected: ${name}`);
      failed = true;
    }
  }
}
if (failed) {
  process.exit(1);
}
console.log(`${file} is valid${selfTest ? `, and ${MUTATIONS.length} broken copies are detected` : ""}`);
