// The page is one file, because the server embeds it and serves nothing else.
// `npm run dev` passes the API on to a running `spa serve` on its usual port.
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';
import { viteSingleFile } from 'vite-plugin-singlefile';

const kServer = 'http://127.0.0.1:8080';

export default defineConfig({
  plugins: [svelte(), viteSingleFile({ removeViteModuleLoader: true })],
  build: { target: 'es2022' },
  server: { proxy: { '/props': kServer, '/v1': kServer } },
});
