// Reports sentences with more than `max` words, in paragraphs and in cells of tables. Code counts as one word.
import { split } from "sentence-splitter";
import { StringSource } from "textlint-util-to-string";

const DEFAULT_MAX = 30;
// Dashes, arrows, operators and brackets are no words.
const WORD = /[\p{L}\p{N}]/u;

export default function (context, options = {}) {
  const { Syntax, RuleError, report, locator } = context;
  const max = options.max ?? DEFAULT_MAX;

  function check(node) {
    const source = new StringSource(node, {
      replacer: ({ node: inner, maskValue, emptyValue }) => {
        if (inner.type === Syntax.Code) return maskValue("x");
        if (inner.type === Syntax.Html || inner.type === Syntax.Image) return emptyValue();
        return undefined;
      },
    });
    for (const sentence of split(source.toString())) {
      if (sentence.type !== "Sentence") continue;
      const count = sentence.raw.split(/\s+/).filter((word) => WORD.test(word)).length;
      if (count <= max) continue;
      const start = source.originalIndexFromIndex(sentence.range[0]) ?? 0;
      report(
        node,
        new RuleError(
          `sentence of ${count} words, at most ${max}: ${sentence.raw.slice(0, 60)} …`,
          {
            padding: locator.at(start),
          },
        ),
      );
    }
  }

  return { [Syntax.Paragraph]: check, [Syntax.TableCell]: check };
}
