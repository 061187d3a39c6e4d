//! Builds agents from their configuration.

use std::{fmt::Display, sync::Arc};

use agentwire_gateway::{
    agent::{Agent, Demo},
    upstream::{
        Adk, AdkOptions, AgUi, AgUiOptions, Events, EventsOptions, Exec, ExecOptions, Hai, HaiOptions,
        LangGraph, LangGraphOptions, Model, ModelOptions, Replay, ReplayOptions,
    },
};

use crate::{
    config::{AgentConfig, Http, Secret, Upstream},
    error::{Class, Error, Result},
};

/// Builds the agent of a configuration entry.
///
/// # Errors
/// If it cannot be built, for example because a recording does not exist.
pub(crate) fn agent(config: &AgentConfig) -> Result<Arc<dyn Agent>> {
    match &config.upstream {
        Upstream::Demo => Ok(Arc::new(Demo::default())),
        Upstream::Python(object) => {
            let message = format!("agent `{}`: `{object}` is a Python object", config.name);
            Err(Error::new(Class::Usage, message)
                .hint("`pip install agentwire-gateway` has an `agentwire serve` that runs it"))
        }
        Upstream::Replay(upstream) => {
            let format = upstream.format.map(|format| format.name.to_owned());
            let (file, options) = (upstream.file.clone(), upstream.options.clone());
            build(config, Replay::new(ReplayOptions { file, format, speed: upstream.speed, options }))
        }
        Upstream::AgUi(http) => {
            build(config, AgUi::new(AgUiOptions { url: http.url.clone(), headers: headers(http) }))
        }
        Upstream::Hai(http) => {
            build(config, Hai::new(HaiOptions { url: http.url.clone(), headers: headers(http) }))
        }
        Upstream::Events(upstream) => {
            let options = EventsOptions {
                url: upstream.http.url.clone(),
                method: Some(upstream.method.to_owned()),
                headers: headers(&upstream.http),
                body: upstream.body.clone(),
                format: upstream.format.map(|format| format.name.to_owned()),
                options: upstream.options.clone(),
            };
            build(config, Events::new(options))
        }
        Upstream::Exec(upstream) => {
            let options = ExecOptions {
                command: upstream.command.clone(),
                format: upstream.format.map(|format| format.name.to_owned()),
                env: upstream.env.clone(),
                cwd: upstream.cwd.clone(),
                options: upstream.options.clone(),
            };
            build(config, Exec::new(options))
        }
        Upstream::LangGraph(upstream) => {
            let options = LangGraphOptions {
                url: upstream.http.url.clone(),
                local: None,
                graph: upstream.graph.clone(),
                assistant: upstream.assistant.clone(),
                headers: headers(&upstream.http),
                context: upstream.context.clone().map(Into::into),
                state_keys: upstream.state_keys.clone(),
                stream_modes: upstream.stream_modes.clone(),
                options: upstream.options.clone(),
            };
            build(config, LangGraph::new(options))
        }
        Upstream::Adk(upstream) => {
            let options = AdkOptions {
                url: upstream.http.url.clone(),
                local: None,
                app: upstream.app.clone(),
                user: upstream.user.clone(),
                headers: headers(&upstream.http),
                no_streaming: !upstream.streaming,
                custom_metadata: upstream.custom_metadata.clone().map(Into::into),
                service_tier: upstream.service_tier.clone(),
                options: upstream.options.clone(),
            };
            build(config, Adk::new(options))
        }
        Upstream::Model(upstream) => {
            let options = ModelOptions {
                api: upstream.api,
                url: upstream.http.url.clone(),
                model: upstream.model.clone(),
                system: upstream.system.clone(),
                api_key: upstream.api_key.as_ref().and_then(Secret::value),
                headers: headers(&upstream.http),
                body: upstream.options.clone(),
                options: Vec::new(),
            };
            build(config, Model::new(options))
        }
    }
}

fn build<A: Agent>(
    config: &AgentConfig,
    agent: std::result::Result<A, impl Display>,
) -> Result<Arc<dyn Agent>> {
    match agent {
        Ok(agent) => Ok(Arc::new(agent)),
        Err(error) => Err(Error::new(Class::Usage, format!("agent `{}`: {error}", config.name))),
    }
}

/// Headers with their values; missing environment variables were rejected before.
fn headers(http: &Http) -> Vec<(String, String)> {
    http.headers.iter().filter_map(|(name, secret)| Some((name.clone(), secret.value()?))).collect()
}
