// Reads requests as JSON from standard input and tells what the JavaScript library makes of the updates in them.
const Y = require("yjs");

function node(item) {
  if (item instanceof Y.XmlText) return item.toString();
  return { tag: item.nodeName, attributes: item.getAttributes(), children: item.toArray().map(node) };
}

function read(doc, type, key) {
  if (type === "text") return doc.getText(key).toString();
  if (type === "map") return doc.getMap(key).toJSON();
  if (type === "array") return doc.getArray(key).toJSON();
  return doc.getXmlFragment(key).toArray().map(node);
}

// Each request: {type, key, updates: [base64], insert?: {position, text}}. `insert` is what someone wrote, in the text,
// after the first update and before he saw the others.
const requests = JSON.parse(require("fs").readFileSync(0, "utf8"));
const answers = requests.map(({ type, key, updates, insert }) => {
  const doc = new Y.Doc();
  updates.forEach((update, number) => {
    Y.applyUpdate(doc, Buffer.from(update, "base64"));
    if (number === 0 && insert) doc.getText(key).insert(insert.position, insert.text);
  });
  return { value: read(doc, type, key), keys: Array.from(doc.share.keys()), version: doc.store.pendingStructs };
});
process.stdout.write(JSON.stringify(answers));
