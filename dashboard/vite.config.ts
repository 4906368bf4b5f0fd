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

/** SHA-256 over, for each file in order: its path, a NUL, its bytes. tests/dashboard/test_built.py does the same. */
function digest(files: string[]): string {
  const hash = createHash("sha256");
  for (const file of files) hash.update(file).update("\0").update(readFileSync(here + file));
  return hash.digest("hex");
}

/** Writes BUILD.json beside the built files, so that anybody can check which sources they came from. */
function stamp(): Plugin {
  return {
    name: "stamp",
    closeBundle() {
      const files = sources();
      const recipe = "SHA-256 over, for each file in sorted order, path + NUL + bytes; paths relative to dashboard/";
      writeFileSync(site + "BUILD.json", JSON.stringify({ recipe, sources: digest(files), files }, null, 1) + "\n");
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
      ["/runs", "/queue", "/workers", "/models", "/settings", "/me", "/users", "/health"].map((path) => [
        path,
        "http://127.0.0.1:8083",
      ]),
    ),
  },
});
