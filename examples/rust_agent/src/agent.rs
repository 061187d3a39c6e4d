//! The agent: looks up the weather, shares the result as state, and asks before it spends money.

use std::{sync::Arc, time::Duration};

use agentwire_gateway::agent::{Agent, BoxError, Emitter, Question, Request, agent_fn};
use serde_json::json;

/// The agent.
pub(crate) fn agent() -> Arc<dyn Agent> {
    agent_fn(answer)
}

async fn answer(request: Request, emit: Emitter) -> Result<(), BoxError> {
    if let Some(answer) = request.input.resume.iter().flatten().next() {
        let payload = answer.payload.as_ref().map_or("nothing", |payload| payload.get());
        emit.text(format!("You answered {payload}.")).await?;
        return Ok(());
    }
    let city = request.user_text();
    let step = emit.step("weather").await?;
    let call = emit.call("weather", json!({"city": city})).await?;
    let degrees = look_up(&city).await;
    call.result(format!("{degrees} degrees")).await?;
    emit.state().append("/cities", json!({"name": city, "degrees": degrees})).await?;
    drop(step);
    let mut message = emit.message();
    for word in format!("It has {degrees} degrees in {city}.").split_inclusive(' ') {
        message.push(word).await?;
    }
    if degrees < 10 {
        let schema = json!({"type": "object", "properties": {"approved": {"type": "boolean"}}});
        emit.interrupt(
            Question::new("Shall I order a coat for 90 EUR?").reason("confirmation").schema(schema),
        );
    }
    Ok(())
}

/// A simulated weather service: as slow as a real one, with a constant result.
async fn look_up(city: &str) -> usize {
    tokio::time::sleep(Duration::from_millis(20)).await;
    city.len() * 3 % 40
}
