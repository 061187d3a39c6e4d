//! Implementations of [`Hooks`] for `Box` and `Arc`, so that a factory can choose between types.

use std::{sync::Arc, time::Duration};

use agentwire_core::event::{Event, RunInput};
use serde_json::Value;

use super::{Hooked, Hooks, Points};
use crate::agent::{NativeEvent, Translated, Translation};

macro_rules! forward {
    ($($pointer:ident),+) => {
        $(impl<H: Hooks + ?Sized> Hooks for $pointer<H> {
            fn input_record<'h>(&'h self, input: &'h RunInput) -> Hooked<'h> {
                (**self).input_record(input)
            }

            fn input(&self, input: RunInput) -> Hooked<'_, RunInput> {
                (**self).input(input)
            }

            fn native<'h>(&'h self, native: NativeEvent, out: &'h mut Vec<NativeEvent>) -> Hooked<'h> {
                (**self).native(native, out)
            }

            fn native_timeout(&self) -> Option<Duration> {
                (**self).native_timeout()
            }

            fn native_fallback<'h>(&'h self, out: &'h mut Vec<Event>) -> Hooked<'h, Vec<NativeEvent>> {
                (**self).native_fallback(out)
            }

            fn translate<'h>(&'h self, native: &'h NativeEvent, out: &'h mut Vec<Event>) -> Hooked<'h, Translation> {
                (**self).translate(native, out)
            }

            fn event<'h>(&'h self, event: Event, out: &'h mut Vec<Event>) -> Hooked<'h> {
                (**self).event(event, out)
            }

            fn state(&self, state: Value) -> Hooked<'_, Value> {
                (**self).state(state)
            }

            fn output_record<'h>(&'h self, event: &'h Event) -> Hooked<'h> {
                (**self).output_record(event)
            }

            fn output(&self, event: Event) -> Hooked<'_, Event> {
                (**self).output(event)
            }

            fn timeout(&self) -> Duration {
                (**self).timeout()
            }

            fn points(&self) -> Points {
                (**self).points()
            }

            fn batch_size(&self) -> usize {
                (**self).batch_size()
            }

            fn natives<'h>(&'h self, batch: Vec<NativeEvent>, out: &'h mut Vec<NativeEvent>) -> Hooked<'h> {
                (**self).natives(batch, out)
            }

            fn translations<'h>(&'h self, batch: &'h [NativeEvent], out: &'h mut Vec<Translated>) -> Hooked<'h> {
                (**self).translations(batch, out)
            }

            fn events<'h>(&'h self, batch: Vec<Event>, out: &'h mut Vec<Event>) -> Hooked<'h> {
                (**self).events(batch, out)
            }

            fn output_records<'h>(&'h self, batch: &'h [Event]) -> Hooked<'h> {
                (**self).output_records(batch)
            }

            fn outputs<'h>(&'h self, batch: Vec<Event>, out: &'h mut Vec<Event>) -> Hooked<'h> {
                (**self).outputs(batch, out)
            }
        })+
    };
}

forward!(Box, Arc);
