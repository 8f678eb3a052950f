export const SHIPPED = "order.shipped" as const;
