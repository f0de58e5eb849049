// Rules for the JavaScript of the report's page, and of the checks themselves.
//
// The page's files are not modules: the report contains them one after another, so each sees the top-level names of all.
import { readdirSync, readFileSync } from "node:fs";
import js from "@eslint/js";

const PAGE = "python/unbloat/report/page";
const TOP_LEVEL = /^(?:async )?(?:class|function|const|let) (\w+)/gm;
const BROWSER = [
  ..."document window location history localStorage navigator URL Blob Image XMLSerializer DecompressionStream".split(
    " ",
  ),
  ..."Response TextDecoder requestAnimationFrame devicePixelRatio getComputedStyle matchMedia".split(
    " ",
  ),
  ..."addEventListener setTimeout clearTimeout atob performance ResizeObserver console".split(" "),
  ..."IntersectionObserver Path2D OffscreenCanvas fetch structuredClone".split(" "),
];

const files = readdirSync(PAGE).filter((name) => name.endsWith(".js"));
const names = files.flatMap((name) =>
  [...readFileSync(`${PAGE}/${name}`, "utf8").matchAll(TOP_LEVEL)].map((match) => match[1]),
);

export default [
  js.configs.recommended,
  {
    files: [`${PAGE}/*.js`],
    languageOptions: {
      sourceType: "script",
      globals: Object.fromEntries([...BROWSER, ...names].map((name) => [name, "readonly"])),
    },
    rules: {
      // Each name is declared in one file and used in others.
      "no-redeclare": ["error", { builtinGlobals: false }],
      "no-unused-vars": ["error", { vars: "local" }],
      eqeqeq: "error",
      "prefer-const": "error",
      "no-var": "error",
    },
  },
  {
    files: ["tests/house/prose-rules/*.js", "eslint.config.js"],
    languageOptions: { globals: { URL: "readonly" } },
  },
];
