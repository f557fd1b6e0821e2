"use strict";

/** The element of this id. */
const element = (id) => document.getElementById(id);

/** A new element with properties; text goes in as text alone. */
function make(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}
