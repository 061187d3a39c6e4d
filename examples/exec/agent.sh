#!/bin/sh
# The smallest agent: AG-UI events as lines. Exit status 0 ends the run successfully.
read -r _input
echo '{"type":"TEXT_MESSAGE_START","messageId":"m1","role":"assistant"}'
for word in "It is " "$(date -u +%H:%M)" " UTC."; do
  printf '{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"%s"}\n' "$word"
done
echo '{"type":"TEXT_MESSAGE_END","messageId":"m1"}'
