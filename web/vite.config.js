// The build of the console: fixed names without hashes, because the binary embeds the files by name, and relative
// addresses, because an app may mount the gateway below a prefix.
import { defineConfig } from "vite";

export default defineConfig({
  base: "./",
  build: {
    outDir: "../crates/agentwire-gateway/console",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    chunkSizeWarningLimit: 2000,
    rollupOptions: {
      output: {
        entryFileNames: "console/console.js",
        chunkFileNames: "console/[name].js",
        assetFileNames: "console/console[extname]",
      },
    },
  },
});
