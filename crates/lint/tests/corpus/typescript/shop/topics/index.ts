export { PLACED } from "./placed";
export * from "./shipping";
