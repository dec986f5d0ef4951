// The search of a built site without a browser: node search.js SITE QUERY... prints, for each query, the page found first.
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const [site, ...queries] = process.argv.slice(2);
const nothing = () => {};
const document = {
  readyState: "loading", // no page that could be ready
  addEventListener: nothing,
  getElementById: () => null,
  querySelectorAll: () => [],
  documentElement: { dataset: {} },
};
const context = vm.createContext({
  console, document, URLSearchParams, SPHINX_HIGHLIGHT_ENABLED: false, localStorage: { setItem: nothing },
});
context.window = context;
// What search.html loads, in its order; the last defines the index.
const scripts = ["documentation_options.js", "doctools.js", "searchtools.js", "language_data.js"];
const sources = [...scripts.map((name) => path.join(site, "_static", name)), path.join(site, "searchindex.js")];
for (const file of sources) vm.runInContext(fs.readFileSync(file, "utf8"), context, { filename: file });
for (const query of queries) {
  context.query = query;
  // Results are sorted for taking from the end.
  const found = vm.runInContext("Search._performSearch(...Search._parseQuery(query))", context);
  console.log(found.length ? found[found.length - 1][0] : "");
}
