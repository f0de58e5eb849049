// Reports words to avoid (tests/house/words.json) outside code and quotations in italics.
import { readFileSync } from "node:fs";

const entries = JSON.parse(readFileSync(new URL("../words.json", import.meta.url), "utf8"))
  .filter((entry) => !entry.names)
  .map((entry) => ({
    pattern: new RegExp(`\\b(?:${entry.words.join("|")})\\b`, "gi"),
    unless: (entry.unless ?? []).map((text) => new RegExp(text, "i")),
    use: entry.use,
  }));

export default function (context) {
  const { Syntax, RuleError, report, getSource, locator } = context;
  return {
    [Syntax.Str](node) {
      if (node.parent?.type === Syntax.Emphasis) return;
      const text = getSource(node);
      for (const { pattern, unless, use } of entries) {
        if (unless.some((exception) => exception.test(text))) continue;
        for (const match of text.matchAll(pattern)) {
          const padding = locator.at(match.index);
          report(node, new RuleError(`"${match[0]}": write ${use}`, { padding }));
        }
      }
    },
  };
}
