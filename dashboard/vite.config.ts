import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

const here = fileURLToPath(new URL(".", import.meta.url));
const site = fileURLToPath(new URL("../api/site/", import.meta.url));

/** The files that a build is made from, as paths with "/" relative to this folder, sorted by code units. */
function sources(): string[] {
  const under = (readdirSync(here + "src", { recursive: true, withFileTypes: true }) as import("node:fs").Dirent[])
    .filter((entry) => entry.isFile())
    .map((entry) => `${entry.parentPath}/${entry.name}`.slice(here.length).replaceAll("\\", "/"));
  const beside = readdirSync(here).filter((name) =>
    /^(index\.html|package\.json|package-lock\.json|vite\.config\.ts|tsconfig.*\.json)$/.test(name),
  );
  return [...under, ...beside].sort();
}

/** SHA-256 over, for each file in order: its path, a NUL, its bytes. tests/unit/dashboard/test_built.py does the same. */
function digest(files: string[]): string {
  const hash = createHash("sha256");
  for (const file of files) hash.update(file).update("\0").update(readFileSync(here + file));
  return hash.digest("hex");
}

/** SHA-256 of each built file, by its path below api/site, sorted by code units. */
function built(): Record<string, string> {
  const files = (readdirSync(site, { recursive: true, withFileTypes: true }) as import("node:fs").Dirent[])
    .filter((entry) => entry.isFile() && entry.name !== "BUILD.json")
    .map((entry) => `${entry.parentPath}/${entry.name}`.replaceAll("\\", "/").replace(/\/+/g, "/").slice(site.length));
  const hash = (file: string) => createHash("sha256").update(readFileSync(site + file)).digest("hex");
  return Object.fromEntries(files.sort().map((file) => [file, hash(file)]));
}

/** The folder below node_modules that a bundled module's code is from; none for our own. */
function origin(id: string): string | undefined {
  const found = id.replaceAll("\\", "/").match(/.*\/node_modules\/((?:@[^/]+\/)?[^/]+)/)?.[1];
  return found ?? id.match(/^\0(vite|rolldown)\//)?.[1];  // helpers of the bundler itself
}

/** Name, version, licence and the licence's own words of a package. */
function notice(name: string): string {
  const folder = `${here}node_modules/${name}/`;
  const { version, license } = JSON.parse(readFileSync(folder + "package.json", "utf-8"));
  const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
  if (!file) throw new Error(`${name} has no licence file: its notice cannot be shipped`);
  return `${name} ${version} (${license})\n\n${readFileSync(folder + file, "utf-8").trim()}\n`;
}

/**
 * Writes beside the built files NOTICE.txt, the licences of all packages whose code is in them, and BUILD.json, by
 * which anybody can check what was built, and from which sources.
 */
function stamp(): Plugin {
  const packages = new Set<string>();
  return {
    name: "stamp",
    generateBundle(_, bundle) {
      const chunks = Object.values(bundle).flatMap((each) => (each.type === "chunk" ? each.moduleIds : []));
      for (const name of chunks.map(origin)) if (name) packages.add(name);
    },
    closeBundle() {
      const names = [...packages].sort();
      const head = "The scripts in this folder hold code of the packages below, each under its own licence.\n\n";
      writeFileSync(site + "NOTICE.txt", head + names.map(notice).join(`\n${"-".repeat(80)}\n\n`));
      const files = sources();
      const recipe = "SHA-256 over, for each file in sorted order, path + NUL + bytes; paths relative to dashboard/";
      const told = { recipe, sources: digest(files), files, packages: names, built: built() };
      writeFileSync(site + "BUILD.json", JSON.stringify(told, null, 1) + "\n");
    },
  };
}

export default defineConfig({
  base: "./",
  plugins: [react(), stamp()],
  build: {
    outDir: site,
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    reportCompressedSize: true,
  },
  server: {
    port: 5173,
    proxy: Object.fromEntries(
      ["/runs", "/queue", "/workers", "/models", "/settings", "/me", "/users", "/health", "/pipelines", "/needs", "/kinds"].map((path) => [
        path,
        "http://127.0.0.1:8083",
      ]),
    ),
  },
});
