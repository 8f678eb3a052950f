mod first;

mod begun_again;

mod given_up_again;

mod schemas;
