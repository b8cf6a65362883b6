// The API's names and refusals in the words of the page's forms.
/** A field's label in a form; its name if no form has it. */
export const labelOf = (field) =>
  document.querySelector(`form [name="${field}"]`)?.labels[0].firstChild.textContent.trim() || field;
// What the API says of a field that does not read well behind its label.
const SAYINGS = [
  [/^must not be null$/, "is required"],
  [/^(must not be \w+) (start|due)_date.*/, "$1 the $2 date"],
  [/^the project is archived/, "is archived"],
  [/^no such .*/, "does not exist any longer"],
];
const say = (message) => SAYINGS.reduce((said, [pattern, words]) => said.replace(pattern, words), message);
/** The details of a refusal as sentences. */
export const refusalOf = (details) =>
  details.map(({ field, message }) => `${labelOf(field)} ${say(message)}`).join(". ");
