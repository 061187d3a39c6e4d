// AG-UI servers of agent frameworks behind `agentwire serve --ag-ui`.

import { checks } from "./checks.mjs";
import { SERVERS } from "./servers.mjs";

for (const server of SERVERS) checks(server);
