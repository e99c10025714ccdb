/**
 * The rules of "How we write" in CONTRIBUTING.md that a program can check.
 * house-style.json has the longest sentence, in words, and the expressions that have a better one.
 */
const options = require("./house-style.json");
const WORD = /[\p{L}\p{N}][\p{L}\p{N}'_.-]*/gu;
const HEADLESS = /^(What|Who|Whose|Whom)\s/;
const BARE_WHETHER = /^Whether\s/;
const IS_NONE = /(?<!\b[Tt]here )\b(is|are) none\b/;
const SPEAKING = /^(Says|Tells|Knows|Wants|Takes note)\s/;

module.exports = function (context) {
  const { Syntax, RuleError, report, getSource, locator } = context;
  const phrases = Object.entries(options.phrases || {}).map(([phrase, better]) => [
    new RegExp(`\\b(?:${phrase})\\b`, "iu"),
    better,
  ]);
  // A docstring of a property may begin with "Whether", as in the field.
  const ofPython = (context.getFilePath() || "").endsWith(".py.md");
  const splitter = import("sentence-splitter"); // an ES module, which this one cannot require

  const say = (node, message, index) =>
    report(node, new RuleError(message, { padding: locator.at(index) }));

  const check = async (node) => {
    const { splitAST, SentenceSplitterSyntax } = await splitter;
    const text = getSource(node);
    const inside = (index, end) =>
      node.children.some(
        (child) =>
          child.type === Syntax.Code &&
          child.range[0] - node.range[0] < end &&
          child.range[1] - node.range[0] > index
      );
    for (const sentence of splitAST(node).children) {
      if (sentence.type !== SentenceSplitterSyntax.Sentence) continue;
      const start = sentence.range[0] - node.range[0];
      const raw = text.slice(start, sentence.range[1] - node.range[0]);
      const words = raw.replace(/`[^`]*`|\]\([^)]*\)/g, " code ").match(WORD) || [];
      if (words.length > options.words) {
        say(node, `A sentence of ${words.length} words; split it.`, start);
      }
      const question = raw.trimEnd().endsWith("?");
      if (!question && (HEADLESS.test(raw) || (!ofPython && BARE_WHETHER.test(raw)))) {
        say(node, `"${words[0]} ..." as a subject; name the thing.`, start);
      }
      const none = IS_NONE.exec(raw);
      if (none) {
        say(node, `"${none[0]}": write "is not", or name what it is.`, start + none.index);
      }
      if (ofPython && SPEAKING.test(raw)) {
        say(node, `"${words[0]} ..."; functions return, raise, record, set or print.`, start);
      }
      for (const [pattern, better] of phrases) {
        const found = pattern.exec(raw);
        if (found && !inside(start + found.index, start + found.index + found[0].length)) {
          say(node, `"${found[0]}": ${better}.`, start + found.index);
        }
      }
    }
  };

  return { [Syntax.Paragraph]: check };
};
