//! From what is configured to an agent that answers.

use std::{fmt::Display, sync::Arc};

use agentwire_gateway::{
    agent::{Agent, Demo},
    upstream::{
        Adk, AdkOptions, AgUi, AgUiOptions, Events, EventsOptions, Exec, ExecOptions, LangGraph,
        LangGraphOptions, OpenAi, OpenAiOptions, Replay, ReplayOptions,
    },
};

use crate::{
    config::{AgentConfig, Http, Secret, Upstream},
    error::{Class, Error, Result},
};

/// The agent behind a configured one.
///
/// # Errors
/// When it cannot be made, such as a recording that is not there.
pub(crate) fn agent(config: &AgentConfig) -> Result<Arc<dyn Agent>> {
    match &config.upstream {
        Upstream::Demo => Ok(Arc::new(Demo::default())),
        Upstream::Replay(of) => {
            let format = of.format.map(|format| format.name.to_owned());
            let (file, options) = (of.file.clone(), of.options.clone());
            made(config, Replay::new(ReplayOptions { file, format, speed: of.speed, options }))
        }
        Upstream::AgUi(http) => {
            made(config, AgUi::new(AgUiOptions { url: http.url.clone(), headers: headers(http) }))
        }
        Upstream::Events(of) => {
            let options = EventsOptions {
                url: of.http.url.clone(),
                method: Some(of.method.to_owned()),
                headers: headers(&of.http),
                body: of.body.clone(),
                format: of.format.map(|format| format.name.to_owned()),
                options: of.options.clone(),
            };
            made(config, Events::new(options))
        }
        Upstream::Exec(of) => {
            let options = ExecOptions {
                command: of.command.clone(),
                format: of.format.map(|format| format.name.to_owned()),
                env: of.env.clone(),
                cwd: of.cwd.clone(),
                options: of.options.clone(),
            };
            made(config, Exec::new(options))
        }
        Upstream::LangGraph(of) => {
            let options = LangGraphOptions {
                url: of.http.url.clone(),
                graph: of.graph.clone(),
                assistant: of.assistant.clone(),
                headers: headers(&of.http),
                context: of.context.clone().map(Into::into),
                state_keys: of.state_keys.clone(),
                options: of.options.clone(),
            };
            made(config, LangGraph::new(options))
        }
        Upstream::Adk(of) => {
            let options = AdkOptions {
                url: of.http.url.clone(),
                app: of.app.clone(),
                user: of.user.clone(),
                headers: headers(&of.http),
                options: of.options.clone(),
            };
            made(config, Adk::new(options))
        }
        Upstream::OpenAi(of) => {
            let options = OpenAiOptions {
                url: of.http.url.clone(),
                model: of.model.clone(),
                system: of.system.clone(),
                api_key: of.api_key.as_ref().and_then(Secret::value),
                headers: headers(&of.http),
                body: of.options.clone(),
                options: Vec::new(),
            };
            made(config, OpenAi::new(options))
        }
    }
}

fn made<A: Agent>(
    config: &AgentConfig,
    agent: std::result::Result<A, impl Display>,
) -> Result<Arc<dyn Agent>> {
    match agent {
        Ok(agent) => Ok(Arc::new(agent)),
        Err(error) => Err(Error::new(Class::Usage, format!("agent `{}`: {error}", config.name))),
    }
}

/// Headers with their values; what is not in the environment has been refused before.
fn headers(http: &Http) -> Vec<(String, String)> {
    http.headers.iter().filter_map(|(name, secret)| Some((name.clone(), secret.value()?))).collect()
}
