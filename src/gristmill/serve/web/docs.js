// The page at /docs: the server's own OpenAPI document as a reference to read. It fetches nothing else.

import { h } from "./dom.js";

const reference = document.getElementById("reference");
const contents = document.getElementById("contents");

/** Text with `code` in it, as nodes. */
function words(text) {
  return text.split("`").map((part, i) => (i % 2 ? h("code", {}, part) : part));
}

function paragraphs(text) {
  return text.split("\n\n").map((part) => h("p", {}, ...words(part)));
}

const named = (ref) => ref.split("/").pop();

/** A schema in a few words, as nodes; names lead to their own tables. */
function kind(schema) {
  if (schema.$ref) return [h("a", { href: `#${named(schema.$ref)}` }, named(schema.$ref))];
  const choices = schema.anyOf?.filter((choice) => choice.type !== "null");
  if (choices) return choices.flatMap((choice, i) => (i ? [" or ", ...kind(choice)] : kind(choice)));
  if ("const" in schema) return [h("code", {}, JSON.stringify(schema.const))];
  if (schema.enum) return schema.enum.flatMap((value, i) => [i ? ", " : "", h("code", {}, JSON.stringify(value))]);
  if (schema.type === "array") return ["list of ", ...(schema.items ? kind(schema.items) : ["anything"])];
  const exact = (bound) => (Math.abs(bound) > Number.MAX_SAFE_INTEGER ? undefined : bound);
  const low = exact(schema.minimum ?? schema.exclusiveMinimum);
  const high = exact(schema.maximum ?? schema.exclusiveMaximum);
  const from = schema.exclusiveMinimum === undefined ? "from" : "over";
  const bounds = [low === undefined ? "" : ` ${from} ${low}`, high === undefined ? "" : ` to ${high}`];
  if (schema.maxLength !== undefined) bounds.push(` of at most ${schema.maxLength} characters`);
  return [(schema.type ?? "anything") + bounds.join("")];
}

function row(name, schema, isRequired, isAnswer) {
  const notes = [];
  if (isRequired && !isAnswer) notes.push(h("span", { class: "required" }, "required"));
  else if (!isAnswer && schema.default !== undefined && schema.default !== null) notes.push("default ", h("code", {}, JSON.stringify(schema.default)));
  return h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, ...kind(schema)), h("td", { class: "note" }, ...notes));
}

function table(schema, isAnswer) {
  const rows = Object.entries(schema.properties ?? {}).map(([name, field]) => row(name, field, schema.required?.includes(name), isAnswer));
  return h("table", {}, h("tbody", {}, ...rows));
}

function operation(path, method, told) {
  const section = h("section", { id: told.operationId }, h("h2", {}, h("span", { class: "method" }, method.toUpperCase()), path), h("p", {}, `${told.summary}.`));
  const body = told.requestBody?.content["application/json"].schema;
  if (body) section.append(h("p", {}, "Body: ", ...kind(body)));
  for (const [status, answer] of Object.entries(told.responses)) {
    const forms = Object.entries(answer.content).flatMap(([type, form], i) => [i ? ", or " : "", ...(type === "application/json" ? kind(form.schema) : [type])]);
    section.append(h("p", { class: "note" }, h("code", {}, status), " ", ...forms));
  }
  return section;
}

function show(api) {
  const operations = Object.entries(api.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, told]) => [path, method, told]));
  const answers = new Set(operations.flatMap(([, , told]) => Object.values(told.responses).flatMap((answer) => JSON.stringify(answer).match(/schemas\/\w+/g) ?? [])).map(named));
  const schemas = Object.entries(api.components.schemas).map(([name, schema]) =>
    h("section", { id: name }, h("h2", {}, name), ...paragraphs(schema.description ?? ""), table(schema, answers.has(name))),
  );
  reference.append(
    ...paragraphs(api.info.description),
    h("p", { class: "note" }, `Version ${api.info.version}; for programs: `, h("a", { href: "openapi.json" }, "openapi.json")),
    ...operations.map((told) => operation(...told)),
    h("h2", { id: "shapes" }, "Bodies and answers"),
    ...schemas,
  );
  const link = (id, text) => h("li", {}, h("a", { href: `#${id}` }, text));
  contents.append(h("ul", {}, ...operations.map(([path, , told]) => link(told.operationId, path)), link("shapes", "Bodies and answers")));
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

try {
  const response = await fetch("openapi.json");
  if (!response.ok) throw new Error((await response.json()).error?.message ?? response.status);
  show(await response.json());
} catch (error) {
  reference.append(h("p", { class: "error", role: "alert" }, `The description of the API cannot be read: ${error.message}`));
}
reference.removeAttribute("aria-busy");
