import { QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { goLive } from "./api/live";
import { beginQueries, queries } from "./api/queries";
import { begin } from "./api/session";
import { App } from "./App";
import { Boundary } from "./ui/Boundary";
import { beginTheme } from "./ui/frame/theme";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/frame.css";
import "./styles/parts.css";
import "./styles/charts.css";
import "./styles/runs.css";
import "./styles/run.css";
import "./styles/panels.css";
import "./styles/pages.css";

begin();
beginTheme();
beginQueries();
goLive();
const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <StrictMode>
      <Boundary at="">
        <QueryClientProvider client={queries}>
          <App />
        </QueryClientProvider>
      </Boundary>
    </StrictMode>,
  );
}
